package etcd

import (
	"sync"

	etcdkube "go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apiserver/pkg/storage"
)

// closing is the storage of one resource that can be closed, also more than once: a resource
// shares one with its subresources. A kind that is added to the API, changed and removed has many,
// one after another.
type closing struct {
	storage.Interface
	once sync.Once
	end  []func()
}

// Close ends what the storage does in the background, and gives back its client.
func (c *closing) Close() {
	c.once.Do(func() {
		for _, end := range c.end {
			end()
		}
	})
}

// owning has a client closed with a storage that was opened with it.
func (s *Server) owning(opened *closing, client *etcdkube.Client) *closing {
	opened.end = append(opened.end, func() {
		select {
		case <-s.Lost(): // it could wait for ever
		default:
			s.drop(client.Client)
		}
	})
	return opened
}
