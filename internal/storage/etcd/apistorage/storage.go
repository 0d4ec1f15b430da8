// Package apistorage is the API's storage on a client of etcd, of whichever: objects as the API reads and writes them,
// names that belong to one object at a time (Reserving), all that changes in the order of the database (Feed), and what
// is stored as the bytes that it is (Stored).
package apistorage

import (
	"fmt"
	"sync"

	etcdkube "go.etcd.io/etcd/client/v3/kubernetes"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
)

// Open returns the storage of one resource through a client. It decodes with the decoder, or as the API does if that is
// nil. The compactor may be nil where nobody needs to be told what the database has forgotten.
func Open(client *etcdkube.Client, compactor etcd3.Compactor, c *storagebackend.ConfigForResource, newObject,
	newList func() runtime.Object,
	resourcePrefix string, decoder etcd3.Decoder) (*Opened, error) {
	if decoder == nil {
		decoder = etcd3.NewDefaultDecoder(c.Codec, storage.APIObjectVersioner{})
	}
	transformer := c.Transformer
	if transformer == nil {
		transformer = identity.NewEncryptCheckTransformer()
	}
	opened, err := etcd3.New(rooted(client, c.Prefix), compactor, c.Codec, newObject, newList, c.Prefix,
		resourcePrefix, c.GroupResource, transformer, c.LeaseManagerConfig, decoder, storage.APIObjectVersioner{})
	if err != nil {
		return nil, fmt.Errorf("open storage of %s: %w", c.GroupResource, err)
	}
	return &Opened{Interface: opened, end: []func(){opened.Close}}, nil
}

// Opened is the storage of one resource that can be closed, also more than once: a resource
// shares one with its subresources. A kind that is added to the API, changed and removed has many,
// one after another.
type Opened struct {
	storage.Interface
	once sync.Once
	end  []func()
}

// OnClose has end called when the storage is closed, after those that were told before.
func (c *Opened) OnClose(end func()) { c.end = append(c.end, end) }

// Close ends what the storage does in the background, and gives back its client.
func (c *Opened) Close() {
	c.once.Do(func() {
		for _, end := range c.end {
			end()
		}
	})
}
