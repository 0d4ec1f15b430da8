package storages

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"

	"github.com/everynode/everynode/internal/apiserver/resource"
)

// How many stored objects of a kind are read at the start to find out whether they
// can be, and how long the database may take for it.
const (
	triedObjects  = 500
	triedPatience = time.Minute
)

// tryStored reads some of what is stored: Secrets, and with a configuration of
// encryption every kind. A server that cannot read them would neither become ready
// nor say why, and what it wrote the others could not read.
func (o *Getter) tryStored(kinds []resource.Definition) error {
	ctx, cancel := context.WithTimeout(context.Background(), triedPatience)
	defer cancel()
	for _, kind := range kinds {
		own := o.Etcd.EncryptionProviderConfigFilepath != ""
		if !own && kind.Plural != "secrets" {
			continue
		}
		if err := o.tryKind(ctx, kind); err != nil {
			if !own {
				return fmt.Errorf(
					"the stored %s cannot be read: %w; if they are encrypted, name their --encryption-provider-config",
					kind.Plural, err,
				)
			}
			return fmt.Errorf(
				"the stored %s cannot be read with --encryption-provider-config %s: %w; add the key that they were written with, "+
					"or the provider identity if they are not encrypted",
				kind.Plural, o.Etcd.EncryptionProviderConfigFilepath, err,
			)
		}
	}
	return nil
}

func (o *Getter) tryKind(ctx context.Context, kind resource.Definition) error {
	options, err := o.GetRESTOptions(kind.GroupVersionResource().GroupResource(), nil)
	if err != nil {
		return err
	}
	prefix, newObject := "/"+options.ResourcePrefix, func() runtime.Object { return kind.New() }
	newList := func() runtime.Object { return kind.NewList() }
	var stored storage.Interface
	if o.Open != nil {
		stored, err = o.Open(options.StorageConfig, newObject, newList, prefix)
	} else {
		var destroy factory.DestroyFunc
		if stored, destroy, err = factory.Create(*options.StorageConfig, newObject, newList, prefix); err == nil {
			defer destroy()
		}
	}
	if err != nil {
		return err
	}
	some := storage.SelectionPredicate{Label: labels.Everything(), Field: fields.Everything(), Limit: triedObjects,
		GetAttrs: storage.DefaultClusterScopedAttr}
	return stored.GetList(ctx, prefix, storage.ListOptions{Predicate: some, Recursive: true}, newList())
}
