package apiserver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	reload "k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/apiserver/atrest"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/storages"
)

// encrypt sets up how objects are encrypted before they are stored, if the
// options name a configuration. It tells for which resources that has a provider.
func encrypt(c *genericapiserver.Config, etcd *genericoptions.EtcdOptions) (providers map[schema.GroupResource]bool,
	err error) {
	file := etcd.EncryptionProviderConfigFilepath
	if file == "" {
		return nil, nil
	}
	served := wait.ContextForChannel(c.DrainedNotify())
	ctx, forget := context.WithCancel(served)
	loaded, err := encryptionconfig.LoadEncryptionConfig(ctx, file, etcd.EncryptionProviderConfigAutomaticReload,
		c.APIServerID)
	if err != nil {
		forget()
		return nil, fmt.Errorf("--encryption-provider-config %s: %w", file, err)
	}
	checks := loaded.HealthChecks
	providers = map[schema.GroupResource]bool{}
	for r := range loaded.Transformers {
		providers[r] = true
	}
	if etcd.EncryptionProviderConfigAutomaticReload {
		providers[everyResource] = true // some day
		// Whoever replaces the configuration forgets the old one.
		dynamic := encryptionconfig.NewDynamicTransformers(loaded.Transformers, checks[0], forget, loaded.KMSCloseGracePeriod)
		c.ResourceTransformers, checks = dynamic, []healthz.HealthChecker{dynamic}
		follow := reload.NewDynamicEncryptionConfiguration("encryption-provider-config", file, dynamic,
			loaded.EncryptionFileContentHash, c.APIServerID)
		err = c.AddPostStartHook("everynode/encryption", func(genericapiserver.PostStartHookContext) error {
			go follow.Run(served)
			return nil
		})
	} else {
		context.AfterFunc(served, forget)
		c.ResourceTransformers = encryptionconfig.StaticTransformers(loaded.Transformers)
	}
	c.HealthzChecks, c.ReadyzChecks = append(c.HealthzChecks, checks...), append(c.ReadyzChecks, checks...)
	return providers, err
}

var everyResource = schema.GroupResource{Group: "*", Resource: "*"}

// covers says whether a configuration has a provider for a resource.
func covers(providers map[schema.GroupResource]bool, r schema.GroupResource) bool {
	return providers[r] || providers[schema.GroupResource{Group: r.Group, Resource: "*"}] || providers[everyResource]
}

// definitionsOfKinds are resources that the server serves besides its own kinds, and stores
// as it does those.
var definitionsOfKinds = []schema.GroupResource{
	{Group: apiextensionsv1.GroupName, Resource: "customresourcedefinitions"}, {Group: apiregistrationv1.GroupName,
		Resource: "apiservices"},
}

// covered lists the resources that are always there for which a configuration has a provider.
func covered(kinds []resource.Definition, providers map[schema.GroupResource]bool) (out []schema.GroupResource) {
	all := slices.Clone(definitionsOfKinds)
	for _, k := range kinds {
		all = append(all, k.GroupVersionResource().GroupResource())
	}
	for _, r := range all {
		if covers(providers, r) {
			out = append(out, r)
		}
	}
	return out
}

// keepKeys sets up the encryption of Secrets by the keys beside the data, and what
// can be told and done about what is stored. It is nil for a server without a place
// for keys.
func keepKeys(cfg Config, c *genericapiserver.Config, kinds []resource.Definition,
	providers map[schema.GroupResource]bool) (*atrest.Keeper, error) {
	if cfg.Stored == nil {
		return nil, nil
	}
	etcd := cfg.Options.Etcd
	keep := atrest.Config{
		File: cfg.KeyFile, Database: cfg.Stored, Prefix: etcd.StorageConfig.Prefix, Settle: cfg.Options.Run.RequestTimeout,
		Clock:       clock.RealClock{},
		Definitions: definitionsOfKinds, CustomPrefix: storages.CustomPrefix,
	}
	if etcd.EncryptionProviderConfigFilepath != "" {
		keep.File, keep.Own, keep.OwnResources = etcd.EncryptionProviderConfigFilepath, c.ResourceTransformers, covered(kinds,
			providers)
		keep.OwnCovers = func(r schema.GroupResource) bool { return covers(providers, r) }
	}
	ctx, cancel := context.WithTimeout(context.Background(), openPatience)
	defer cancel()
	keeper, err := atrest.Open(ctx, keep)
	if err != nil {
		return nil, err
	}
	c.ResourceTransformers = keeper
	return keeper, nil
}

// tellKeys serves what is told about keys, and follows and announces them.
func (s *Server) tellKeys(keeper *atrest.Keeper, cfg Config, client kubernetes.Interface) error {
	if keeper == nil {
		return nil
	}
	keeper.Install(s.generic.Handler.NonGoRestfulMux.Handle)
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("learn this machine's name: %w", err)
	}
	announcer := &atrest.Announcer{Keeper: keeper, Client: client, Name: keysLease(host, cfg.KeyFile, cfg.Name),
		Host: host}
	err = s.generic.AddPostStartHook("everynode/keys", func(c genericapiserver.PostStartHookContext) error {
		go keeper.Run(c)
		go announcer.Run(c)
		return nil
	})
	if err != nil {
		return fmt.Errorf("add the start hook of keys: %w", err)
	}
	return s.generic.AddPreShutdownHook("everynode/keys", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), withdrawPatience)
		defer cancel()
		if err := announcer.Withdraw(ctx); err != nil {
			// Not returned: the library would then leave the listener open, and panic when it
			// is closed. A database that has ended is no reason for that.
			klog.FromContext(ctx).V(2).Info("Could not take back the Lease of this server; it ends by itself", "err", err)
		}
		return nil
	})
}

// keysLease names the Lease by which a server tells which keys it uses. Two machines
// may have one host name and the same folders; their servers' names differ.
func keysLease(host, file, server string) string {
	sum := sha256.Sum256([]byte(host + "\x00" + file + "\x00" + server))
	return "everynode-apiserver-" + hex.EncodeToString(sum[:8])
}

// openPatience is how long the database may take until it is known which keys are in use.
const openPatience = time.Minute

// withdrawPatience is how long a server that stops tries to say so.
const withdrawPatience = 2 * time.Second
