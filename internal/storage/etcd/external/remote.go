package external

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdkube "go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/everynode/everynode/internal/storage/etcd/apistorage"
	"github.com/everynode/everynode/internal/storage/etcd/kv"
)

// How long a connection to another's etcd may take, and how it is noticed that one
// is gone.
const (
	remoteDial  = 20 * time.Second
	remoteAlive = 30 * time.Second
	remoteDead  = 10 * time.Second
)

// OpenReserving returns the storage of a resource whose objects hold names, on the etcd that the configuration names.
// The client lives as long as the process.
func OpenReserving(c *storagebackend.ConfigForResource, newObject, newList func() runtime.Object, resourcePrefix string,
	holds func(runtime.Object) (holder string, names []string)) (storage.Interface, error) {
	client, err := remote(c.Transport)
	if err != nil {
		return nil, err
	}
	return apistorage.OpenReserving(client, nil, c, newObject, newList, resourcePrefix, holds)
}

// remote connects to another's etcd. The connection is made when it is used.
func remote(t storagebackend.TransportConfig) (*etcdkube.Client, error) {
	secured, err := remoteTLS(t)
	if err != nil {
		return nil, err
	}
	client, err := etcdkube.New(clientv3.Config{
		Endpoints: t.ServerList, TLS: secured, Logger: zap.NewNop(),
		DialTimeout: remoteDial, DialKeepAliveTime: remoteAlive, DialKeepAliveTimeout: remoteDead,
	})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %v: %w", t.ServerList, err)
	}
	client.KV = kv.InTurns(client.KV)
	return client, nil
}

// remoteTLS is nil for an etcd that is reached without TLS.
func remoteTLS(t storagebackend.TransportConfig) (*tls.Config, error) {
	if t.CertFile == "" && t.KeyFile == "" && t.TrustedCAFile == "" {
		return nil, nil //nolint:nilnil // That is how the client is told.
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.TrustedCAFile != "" {
		pem, err := os.ReadFile(t.TrustedCAFile)
		if err != nil {
			return nil, fmt.Errorf("read the CA of etcd: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the CA file of etcd %s holds no certificate", t.TrustedCAFile)
		}
	}
	if t.CertFile != "" {
		// Read again for each connection, so that a renewed certificate is used.
		out.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("read the certificate for etcd: %w", err)
			}
			return &pair, nil
		}
	}
	return out, nil
}

// Stored returns what is stored in the etcd that the configuration names.
func Stored(t storagebackend.TransportConfig) (*apistorage.Stored, error) {
	client, err := remote(t)
	if err != nil {
		return nil, err
	}
	return apistorage.NewStored(client.Client), nil
}
