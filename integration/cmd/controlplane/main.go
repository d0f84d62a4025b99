// Command controlplane is etcd, kube-apiserver and kube-controller-manager in one
// binary, so that a test can run, kill and restart each as a process of its own
// without any of them being installed. Package controlplane builds and runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // as in the real binaries: --logging-format=json
	kubeapiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	kubecontrollermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

// subcommands make the command of each component. Only that of the component to run
// may be made: the API server's takes the signals of the whole process when it is
// made, and the controller manager, which leaves them alone, would not end by them.
var subcommands = map[string]func() *cobra.Command{
	"etcd":                    etcdCommand,
	"kube-apiserver":          kubeapiserver.NewAPIServerCommand,
	"kube-controller-manager": kubecontrollermanager.NewControllerManagerCommand,
}

func main() {
	if len(os.Args) < 2 || subcommands[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "usage: %s %s [flag...]\n", os.Args[0], strings.Join(slices.Sorted(maps.Keys(subcommands)), "|"))
		os.Exit(2)
	}
	command := subcommands[os.Args[1]]()
	command.SetArgs(os.Args[2:])
	os.Exit(cli.Run(command))
}

// etcdCommand runs one etcd member from a configuration file of etcd's own format.
func etcdCommand() *cobra.Command {
	var configFile string
	command := &cobra.Command{
		Use:           "etcd",
		Short:         "Run a single etcd member",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(command.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return runEtcd(ctx, configFile)
		},
	}
	command.Flags().StringVar(&configFile, "config-file", "", "path of the configuration file")
	if err := command.MarkFlagRequired("config-file"); err != nil {
		panic(err) // only when the flag named is not the one defined above
	}
	return command
}

// runEtcd serves until ctx ends or the member fails.
func runEtcd(ctx context.Context, configFile string) error {
	config, err := embed.ConfigFromFile(configFile)
	if err != nil {
		return fmt.Errorf("reading etcd configuration %s: %w", configFile, err)
	}
	member, err := embed.StartEtcd(config)
	if err != nil {
		return fmt.Errorf("starting etcd: %w", err)
	}
	defer member.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-member.Err():
		return fmt.Errorf("serving etcd: %w", err)
	case <-member.Server.StopNotify():
		return errors.New("serving etcd: the member stopped by itself")
	}
}
