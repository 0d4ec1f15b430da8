package apiserver

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	reload "k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"

	"github.com/everynode/everynode/internal/apiserver/resource"
)

// encrypt sets up how objects are encrypted before they are stored, if the
// options name a configuration.
func encrypt(c *genericapiserver.Config, etcd *genericoptions.EtcdOptions) error {
	file := etcd.EncryptionProviderConfigFilepath
	if file == "" {
		return nil
	}
	served := wait.ContextForChannel(c.DrainedNotify())
	ctx, forget := context.WithCancel(served)
	loaded, err := encryptionconfig.LoadEncryptionConfig(ctx, file, etcd.EncryptionProviderConfigAutomaticReload, c.APIServerID)
	if err != nil {
		forget()
		return fmt.Errorf("--encryption-provider-config %s: %w", file, err)
	}
	checks := loaded.HealthChecks
	if etcd.EncryptionProviderConfigAutomaticReload {
		// Whoever replaces the configuration forgets the old one.
		dynamic := encryptionconfig.NewDynamicTransformers(loaded.Transformers, checks[0], forget, loaded.KMSCloseGracePeriod)
		c.ResourceTransformers, checks = dynamic, []healthz.HealthChecker{dynamic}
		follow := reload.NewDynamicEncryptionConfiguration("encryption-provider-config", file, dynamic, loaded.EncryptionFileContentHash, c.APIServerID)
		err = c.AddPostStartHook("everynode/encryption", func(genericapiserver.PostStartHookContext) error {
			go follow.Run(served)
			return nil
		})
	} else {
		context.AfterFunc(served, forget)
		c.ResourceTransformers = encryptionconfig.StaticTransformers(loaded.Transformers)
	}
	c.HealthzChecks, c.ReadyzChecks = append(c.HealthzChecks, checks...), append(c.ReadyzChecks, checks...)
	return err
}

// How many stored objects of a kind are read at the start to find out whether they
// can be, and how long the database may take for it.
const (
	triedObjects  = 500
	triedPatience = time.Minute
)

// tryStored reads some of what is stored: Secrets, and with a configuration of
// encryption every kind. A server that cannot read them would neither become ready
// nor say why, and what it wrote the others could not read.
func (o *storageOptions) tryStored(kinds []resource.Definition) error {
	ctx, cancel := context.WithTimeout(context.Background(), triedPatience)
	defer cancel()
	for _, kind := range kinds {
		if o.transformers == nil && kind.Plural != "secrets" {
			continue
		}
		if err := o.tryKind(ctx, kind); err != nil {
			if o.transformers == nil {
				return fmt.Errorf("the stored %s cannot be read: %w; if they are encrypted, name their --encryption-provider-config", kind.Plural, err)
			}
			return fmt.Errorf("the stored %s cannot be read with --encryption-provider-config %s: %w; add the key that they were written with, or the provider identity if they are not encrypted",
				kind.Plural, o.etcd.EncryptionProviderConfigFilepath, err)
		}
	}
	return nil
}

// serve makes these the storages of the server, if what they hold can be read.
func (o *storageOptions) serve(c *genericapiserver.Config, kinds []resource.Definition) error {
	c.RESTOptionsGetter = o
	return o.tryStored(kinds)
}

func (o *storageOptions) tryKind(ctx context.Context, kind resource.Definition) error {
	options, err := o.GetRESTOptions(kind.GroupVersionResource().GroupResource(), nil)
	if err != nil {
		return err
	}
	prefix, newObject := "/"+options.ResourcePrefix, func() runtime.Object { return kind.New() }
	newList := func() runtime.Object { return kind.NewList() }
	var stored storage.Interface
	if o.open != nil {
		stored, err = o.open(options.StorageConfig, newObject, newList, prefix)
	} else {
		var destroy factory.DestroyFunc
		if stored, destroy, err = factory.Create(*options.StorageConfig, newObject, newList, prefix); err == nil {
			defer destroy()
		}
	}
	if err != nil {
		return err
	}
	some := storage.SelectionPredicate{Label: labels.Everything(), Field: fields.Everything(), Limit: triedObjects, GetAttrs: storage.DefaultClusterScopedAttr}
	return stored.GetList(ctx, prefix, storage.ListOptions{Predicate: some, Recursive: true}, newList())
}
