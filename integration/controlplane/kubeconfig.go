package controlplane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// AdminKubeconfig is the path of a kubeconfig of the user admin, who may do
// everything.
func (cp *ControlPlane) AdminKubeconfig() string { return cp.path("admin.kubeconfig") }

// Kubeconfig writes a kubeconfig of a ServiceAccount that exists, with a token that
// the API server signs for it and the account's namespace as default, and returns
// its path. So the program under test may do what RBAC allows that account. Each
// call makes another token and another file.
func (cp *ControlPlane) Kubeconfig(ctx context.Context, namespace, serviceAccount string) (string, error) {
	token, err := cp.serviceAccountToken(ctx, namespace, serviceAccount)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp(cp.dir, namespace+"-"+serviceAccount+"-")
	if err != nil {
		return "", fmt.Errorf("make a folder for the kubeconfig of ServiceAccount %s/%s: %w", namespace, serviceAccount, err)
	}
	path := filepath.Join(dir, "kubeconfig")
	return path, cp.writeKubeconfig(path, namespace, serviceAccount, token)
}

// ServiceAccountFolder makes a folder as a pod of a ServiceAccount has it mounted
// (/var/run/secrets/kubernetes.io/serviceaccount), with token, ca.crt and namespace,
// and returns its path. Each call makes another token and another folder.
func (cp *ControlPlane) ServiceAccountFolder(ctx context.Context, namespace, serviceAccount string) (string, error) {
	token, err := cp.serviceAccountToken(ctx, namespace, serviceAccount)
	if err != nil {
		return "", err
	}
	ca, err := os.ReadFile(cp.CAFile())
	if err != nil {
		return "", fmt.Errorf("read the API server's authority: %w", err)
	}
	dir, err := os.MkdirTemp(cp.dir, namespace+"-"+serviceAccount+"-")
	if err != nil {
		return "", fmt.Errorf("make the folder of ServiceAccount %s/%s: %w", namespace, serviceAccount, err)
	}
	for name, content := range map[string][]byte{
		"token":     []byte(token),
		"ca.crt":    ca,
		"namespace": []byte(namespace),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return "", fmt.Errorf("write the folder of ServiceAccount %s/%s: %w", namespace, serviceAccount, err)
		}
	}
	return dir, nil
}

// serviceAccountToken asks the API server for a token, valid for an hour.
func (cp *ControlPlane) serviceAccountToken(ctx context.Context, namespace, serviceAccount string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	answer, err := cp.admin.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, serviceAccount, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("ask for a token of ServiceAccount %s/%s: %w", namespace, serviceAccount, err)
	}
	return answer.Status.Token, nil
}

// writeKubeconfig writes a kubeconfig that needs no other file.
func (cp *ControlPlane) writeKubeconfig(path, namespace, user, token string) error {
	ca, err := os.ReadFile(cp.CAFile())
	if err != nil {
		return fmt.Errorf("read the API server's authority: %w", err)
	}
	const name = "test" // of the one cluster and the one context
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: cp.url, CertificateAuthorityData: ca}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user, Namespace: namespace}
	config.CurrentContext = name
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write the kubeconfig of %s: %w", user, err)
	}
	return nil
}

// adminConfig is how the test itself speaks to the API server.
func (cp *ControlPlane) adminConfig() *rest.Config {
	return &rest.Config{
		Host:            cp.url,
		BearerToken:     cp.token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: cp.CAFile()},
		QPS:             -1, // no limit: tests make many objects at once
	}
}
