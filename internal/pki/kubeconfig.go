package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/everynode/everynode/internal/pki/keyfile"
)

const kubeconfigName = "everynode"

// AdminKubeconfig is a kubeconfig for AdminUser at a server URL, with everything
// in it that a client needs.
func (b *Bundle) AdminKubeconfig(serverURL string) ([]byte, error) {
	certPEM, privateKeyPEM, err := b.adminPEM()
	if err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[kubeconfigName] = &clientcmdapi.Cluster{Server: serverURL, CertificateAuthorityData: b.CAPEM()}
	config.AuthInfos[AdminUser] = &clientcmdapi.AuthInfo{ClientCertificateData: certPEM, ClientKeyData: privateKeyPEM}
	config.Contexts[kubeconfigName] = &clientcmdapi.Context{Cluster: kubeconfigName, AuthInfo: AdminUser}
	config.CurrentContext = kubeconfigName
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig: %w", err)
	}
	return data, nil
}

// RewriteKubeconfig brings a kubeconfig of AdminUser up to date with the directory,
// for the server that it names. Without such a file nothing happens.
func RewriteKubeconfig(dir, path string, now time.Time) error {
	present, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = clientcmd.ConfirmUsable(*present, "")
	}
	if err != nil {
		return fmt.Errorf("read the kubeconfig %s: %w; the server writes it again at its start", path, err)
	}
	unlock, err := lockDirectory(dir)
	if err != nil {
		return err
	}
	defer unlock()
	s, err := readState(dir, now)
	if err != nil {
		return err
	}
	b := &Bundle{dir: dir}
	b.state.Store(s)
	return b.WriteKubeconfig(path, present.Clusters[present.Contexts[present.CurrentContext].Cluster].Server)
}

// WriteKubeconfig writes AdminKubeconfig to path, mode 0600, in one step.
func (b *Bundle) WriteKubeconfig(path, serverURL string) error {
	data, err := b.AdminKubeconfig(serverURL)
	if err != nil {
		return err
	}
	return keyfile.Write(path, data)
}

// AdminConfig is a client configuration for AdminUser at a server URL.
func (b *Bundle) AdminConfig(serverURL string) (*rest.Config, error) {
	certPEM, privateKeyPEM, err := b.adminPEM()
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host:            serverURL,
		TLSClientConfig: rest.TLSClientConfig{CAData: b.CAPEM(), CertData: certPEM, KeyData: privateKeyPEM},
	}, nil
}

func (b *Bundle) adminPEM() (certPEM, privateKeyPEM []byte, err error) {
	p := b.state.Load().leaves[adminName]
	privateKeyPEM, err = keyfile.KeyPEM(p.key)
	return keyfile.CertificatePEM(p.cert), privateKeyPEM, err
}
