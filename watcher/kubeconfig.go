package watcher

import (
	"cmp"
	"errors"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// API says how to reach the Kubernetes API.
type API struct {
	Kubeconfig string // path; "" for the service account of the pod that we run in
	Context    string // of the kubeconfig; "" for its current one
	UserAgent  string
}

// Client returns a client for the API, and the namespace of the kubeconfig's context if it has one. It makes no
// request: an API that is away is no error here. The errors are faults of configuration and name the file.
func (a API) Client() (*kubernetes.Clientset, string, error) {
	config, namespace, err := a.config()
	if err != nil {
		return nil, "", err
	}
	config.UserAgent = a.UserAgent
	// One list and one watch for each source are the only requests: the client's own limit would only hold up a start.
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, "", fmt.Errorf("make a client of %s: %w", a.Kubeconfig, err)
	}
	return client, namespace, nil
}

func (a API) config() (*rest.Config, string, error) {
	if a.Kubeconfig == "" {
		config, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, "", errors.New("not given, and not in a cluster (KUBERNETES_SERVICE_HOST is not set): " +
				"want --kubeconfig or --manifests")
		}
		if err != nil {
			return nil, "", fmt.Errorf("not given, and the service account of the pod cannot be read: %w", err)
		}
		return config, "", nil
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: a.Kubeconfig},
		&clientcmd.ConfigOverrides{CurrentContext: a.Context},
	)
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("read %s: %w", a.Kubeconfig, err)
	}
	if config.Insecure {
		return nil, "", fmt.Errorf("%s: insecure-skip-tls-verify is not supported: want certificate-authority", a.Kubeconfig)
	}
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, "", fmt.Errorf("read %s: %w", a.Kubeconfig, err)
	}
	namespace := ""
	if inUse := raw.Contexts[cmp.Or(a.Context, raw.CurrentContext)]; inUse != nil {
		namespace = inUse.Namespace
	}
	return config, namespace, nil
}
