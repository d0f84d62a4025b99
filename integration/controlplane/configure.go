package controlplane

import (
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/yaml"
)

const (
	// serviceRanges are where ClusterIPs come from: one range of each family makes
	// the cluster dual-stack, IPv4 first.
	serviceRanges = "10.96.0.0/16,fd00:96::/112"
	// advertiseAddress is what default/kubernetes has as its endpoint. The address
	// that the API server listens on can't be: the API refuses loopback addresses in
	// Endpoints. Nothing listens on this one (RFC 5737).
	advertiseAddress = "192.0.2.1"
	// issuer is whom the tokens of ServiceAccounts say they come from.
	issuer = "https://kubernetes.default.svc"
)

// controllers are what runs in the controller manager: what writes slices and
// Endpoints, what makes pods, and what cleans up after them (without the garbage
// collector, the slices of a deleted Service stay). Those left out would need
// nodes, volumes or signers.
var controllers = []string{
	"deployment-controller",
	"endpoints-controller",
	"endpointslice-controller",
	"garbage-collector-controller",
	"job-controller",
	"namespace-controller",
	"replicaset-controller",
	"serviceaccount-controller",
	"statefulset-controller",
}

// configure writes the files that the components read into dir.
func configure(binary, dir string) (*ControlPlane, error) {
	cp := &ControlPlane{
		dir:       dir,
		token:     rand.Text(),
		commands:  make(map[Component]command),
		processes: make(map[Component]*process),
	}
	ports, err := freePorts(4)
	if err != nil {
		return nil, err
	}
	address := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", ports[i]) }
	etcdClients, etcdPeers, apiServer, controllerManager := "http://"+address(0), "http://"+address(1), address(2), address(3)
	cp.url = "https://" + apiServer

	if err := cp.writeCertificates(); err != nil {
		return nil, err
	}
	if err := cp.writeServiceAccountKey(); err != nil {
		return nil, err
	}
	if err := cp.writeFile("tokens.csv", []byte(cp.token+",admin,admin,system:masters\n")); err != nil {
		return nil, err
	}
	if err := cp.writeKubeconfig(cp.AdminKubeconfig(), "default", "admin", cp.token); err != nil {
		return nil, err
	}
	if cp.admin, err = kubernetes.NewForConfig(cp.adminConfig()); err != nil {
		return nil, fmt.Errorf("make the client of the admin: %w", err)
	}

	etcdConfig, err := yaml.Marshal(map[string]any{
		"name":                        "etcd",
		"data-dir":                    cp.path("etcd"),
		"listen-client-urls":          etcdClients,
		"advertise-client-urls":       etcdClients,
		"listen-peer-urls":            etcdPeers,
		"initial-advertise-peer-urls": etcdPeers,
		"initial-cluster":             "etcd=" + etcdPeers,
		// What is written outlives the process all the same, only not the machine.
		"unsafe-no-fsync": true,
	})
	if err != nil {
		return nil, fmt.Errorf("write the configuration of etcd: %w", err)
	}
	if err := cp.writeFile("etcd.yaml", etcdConfig); err != nil {
		return nil, err
	}

	cp.addCommand(binary, Etcd, etcdClients+"/readyz", map[string]string{
		"config-file": cp.path("etcd.yaml"),
	})
	cp.addCommand(binary, APIServer, cp.url+"/readyz", map[string]string{
		"advertise-address":                advertiseAddress,
		"authorization-mode":               "RBAC",
		"bind-address":                     "127.0.0.1",
		"cert-dir":                         cp.path("kube-apiserver"),
		"disable-admission-plugins":        "ServiceAccount", // else pods wait for their ServiceAccount
		"etcd-servers":                     etcdClients,
		"secure-port":                      port(apiServer),
		"service-account-issuer":           issuer,
		"service-account-key-file":         cp.path("service-account.key"),
		"service-account-signing-key-file": cp.path("service-account.key"),
		"service-cluster-ip-range":         serviceRanges,
		"tls-cert-file":                    cp.ServingCertFile(),
		"tls-private-key-file":             cp.path("serving.key"),
		"token-auth-file":                  cp.path("tokens.csv"),
	})
	cp.addCommand(binary, ControllerManager, "https://"+controllerManager+"/healthz", map[string]string{
		"bind-address":         "127.0.0.1",
		"controllers":          strings.Join(controllers, ","),
		"kubeconfig":           cp.AdminKubeconfig(),
		"leader-elect":         "false",
		"secure-port":          port(controllerManager),
		"tls-cert-file":        cp.ServingCertFile(),
		"tls-private-key-file": cp.path("serving.key"),
	})
	return cp, nil
}

// CAFile is the path of the certificate, in PEM, of the authority that signed the
// API server's.
func (cp *ControlPlane) CAFile() string { return cp.path("ca.crt") }

// ServingCertFile is the path of the certificate, in PEM, that the API server
// shows, without its authority's.
func (cp *ControlPlane) ServingCertFile() string { return cp.path("serving.crt") }

// addCommand sets how to run a component.
func (cp *ControlPlane) addCommand(binary string, component Component, readyURL string, flags map[string]string) {
	args := []string{string(component)}
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		args = append(args, "--"+name+"="+flags[name])
	}
	cp.commands[component] = command{
		binary:   binary,
		args:     args,
		logFile:  cp.path(string(component) + ".log"),
		readyURL: readyURL,
	}
}

// writeCertificates makes one authority and one certificate for 127.0.0.1.
func (cp *ControlPlane) writeCertificates() error {
	chain, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, []string{"localhost"})
	if err != nil {
		return fmt.Errorf("make the serving certificate: %w", err)
	}
	certificates, err := certutil.ParseCertsPEM(chain)
	if err != nil {
		return fmt.Errorf("read the serving certificate: %w", err)
	}
	if len(certificates) != 2 {
		return fmt.Errorf("read the serving certificate: %d certificates instead of it and its authority's", len(certificates))
	}
	for name, i := range map[string]int{"serving.crt": 0, "ca.crt": 1} {
		encoded, err := certutil.EncodeCertificates(certificates[i])
		if err != nil {
			return fmt.Errorf("encode %s: %w", name, err)
		}
		if err := cp.writeFile(name, encoded); err != nil {
			return err
		}
	}
	return cp.writeFile("serving.key", key)
}

// writeServiceAccountKey makes the key that signs the tokens of ServiceAccounts.
func (cp *ControlPlane) writeServiceAccountKey() error {
	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return fmt.Errorf("make the key of the tokens of ServiceAccounts: %w", err)
	}
	return cp.writeFile("service-account.key", key)
}

// path is that of a file in the control plane's folder.
func (cp *ControlPlane) path(name string) string { return filepath.Join(cp.dir, name) }

// writeFile writes a file of the control plane's folder. Some have secrets in them,
// if only of a test.
func (cp *ControlPlane) writeFile(name string, content []byte) error {
	if err := os.WriteFile(cp.path(name), content, 0o600); err != nil {
		return fmt.Errorf("write a file of the control plane: %w", err)
	}
	return nil
}

// port is the port of an address that configure made.
func port(address string) string {
	_, port, _ := strings.Cut(address, ":")
	return port
}
