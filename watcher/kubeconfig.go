package watcher

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"path/filepath"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
)

// API says how to reach the Kubernetes API, and whom to take for it.
type API struct {
	Kubeconfig string // path; "" for a service account
	Context    string // of the kubeconfig; "" for its current one

	URL                string // of the API, with a service account
	ServiceAccountPath string // folder with its token and ca.crt

	TrustedPeerCertFile string // the only certificates that the API may have; "" for a certificate of the CA
	UserAgent           string
	Log                 *slog.Logger
}

// Client is a client for an API.
type Client struct {
	*kubernetes.Clientset
	transport *apiTransport
}

// FilesFault returns what is wrong now with the files by which the API and we know each other, while what they said
// before is in use; nil if they are good. Any goroutine may call it.
func (c *Client) FilesFault() error { return c.transport.filesFault() }

// SettingError is a fault of one setting of API.
type SettingError struct {
	Setting string // the flag's name
	Err     error
}

func (e *SettingError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *SettingError) Unwrap() error { return e.Err }

// Client returns a client for the API, and the namespace of the kubeconfig's context if it has one. It makes no
// request: an API that is away is no error here. The errors are faults of configuration and name the file; they are
// SettingErrors, joined.
func (a API) Client() (*Client, string, error) {
	setting := "service-account-path"
	if a.Kubeconfig != "" {
		setting = "kubeconfig"
	}
	config, namespace, err := a.config()
	if err != nil {
		return nil, "", err
	}
	config.UserAgent = a.UserAgent
	// One list and one watch for each source are the only requests: the client's own limit would only hold up a start.
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"

	// All that client-go knows of plugins, impersonation and the user agent; the rest is ours.
	clientGo, err := config.TransportConfig()
	if err != nil {
		return nil, "", &SettingError{setting, err}
	}
	inner, err := newAPITransport(config, clientGo, setting, a.TrustedPeerCertFile, a.Log)
	if err != nil {
		return nil, "", err
	}
	clientGo.TLS, clientGo.BearerToken, clientGo.BearerTokenFile = transport.TLSConfig{}, "", ""
	outer, err := transport.HTTPWrappersForConfig(clientGo, inner)
	if err != nil {
		return nil, "", &SettingError{setting, err}
	}
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: outer})
	if err != nil {
		return nil, "", &SettingError{setting, fmt.Errorf("make a client: %w", err)}
	}
	return &Client{Clientset: client, transport: inner}, namespace, nil
}

// config returns what the settings say, without any fault of what client-go would let pass.
func (a API) config() (*rest.Config, string, error) {
	if a.Kubeconfig != "" {
		config, namespace, err := a.ofKubeconfig()
		if err != nil {
			return nil, "", &SettingError{"kubeconfig", err}
		}
		return config, namespace, nil
	}
	if a.URL == "" {
		return nil, "", &SettingError{"kubeconfig", errors.New("not given, and not in a cluster (KUBERNETES_SERVICE_HOST " +
			"is not set): want --kubeconfig, --kube-api or --manifests")}
	}
	if err := CheckURL(a.URL); err != nil {
		return nil, "", &SettingError{"kube-api", err}
	}
	return &rest.Config{
		Host:            a.URL,
		BearerTokenFile: filepath.Join(a.ServiceAccountPath, "token"),
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(a.ServiceAccountPath, "ca.crt")},
	}, "", nil
}

func (a API) ofKubeconfig() (*rest.Config, string, error) {
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
	if err := CheckURL(config.Host); err != nil {
		return nil, "", fmt.Errorf("%s: server: %w", a.Kubeconfig, err)
	}
	if config.CAFile == "" && len(config.CAData) == 0 && a.TrustedPeerCertFile == "" {
		return nil, "", fmt.Errorf("%s: the cluster has no certificate-authority, and the system's are not trusted in its "+
			"place: want certificate-authority or certificate-authority-data, or --trusted-peer-cert-file", a.Kubeconfig)
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

// CheckURL returns what is wrong with the URL of an API. What it finds fault with it does not repeat if that may hold a
// password.
func CheckURL(text string) error {
	const want = "want for instance https://192.0.2.1:6443"
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return errors.New("is not a URL: " + want)
	case u.User != nil:
		return errors.New("has a user: credentials belong in a kubeconfig or a service account")
	case u.Scheme != "https":
		return fmt.Errorf("%q is not a URL with https, and tokens are sent over nothing else: %s", text, want)
	case u.Hostname() == "":
		return fmt.Errorf("%q has no host: %s", text, want)
	case u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return fmt.Errorf("%q has more than host, port and path: %s", text, want)
	}
	return nil
}
