package apiserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/admission"
	webhookinit "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/apiserver/admission/builtinkinds"
	"github.com/everynode/everynode/internal/apiserver/admission/certificates"
	"github.com/everynode/everynode/internal/apiserver/admission/defaulttolerationseconds"
	"github.com/everynode/everynode/internal/apiserver/admission/fieldmanagers"
	"github.com/everynode/everynode/internal/apiserver/admission/ingressclass"
	"github.com/everynode/everynode/internal/apiserver/admission/limitrange"
	"github.com/everynode/everynode/internal/apiserver/admission/livecontent"
	"github.com/everynode/everynode/internal/apiserver/admission/metered"
	admitstartup "github.com/everynode/everynode/internal/apiserver/admission/nodestartup"
	"github.com/everynode/everynode/internal/apiserver/admission/onbindings"
	"github.com/everynode/everynode/internal/apiserver/admission/podsecurity"
	"github.com/everynode/everynode/internal/apiserver/admission/podtopologylabels"
	"github.com/everynode/everynode/internal/apiserver/admission/priority"
	"github.com/everynode/everynode/internal/apiserver/admission/resourcequota"
	"github.com/everynode/everynode/internal/apiserver/admission/rolloutapproval"
	"github.com/everynode/everynode/internal/apiserver/admission/runtimeclass"
	"github.com/everynode/everynode/internal/apiserver/admission/servertokens"
	"github.com/everynode/everynode/internal/apiserver/admission/serviceaccount"
	"github.com/everynode/everynode/internal/apiserver/admission/storageclass"
	"github.com/everynode/everynode/internal/apiserver/admission/storageinuse"
	"github.com/everynode/everynode/internal/apiserver/admission/storageresize"
	"github.com/everynode/everynode/internal/apiserver/admission/taintnodesbycondition"
	"github.com/everynode/everynode/internal/apiserver/admission/variantfit"
	"github.com/everynode/everynode/internal/apiserver/bootstrap"
	"github.com/everynode/everynode/internal/apiserver/nodeauth"
	"github.com/everynode/everynode/internal/apiserver/options"
	"github.com/everynode/everynode/internal/apiserver/podaccess"
	"github.com/everynode/everynode/internal/apiserver/rbac"
	"github.com/everynode/everynode/internal/apiserver/stored"
	"github.com/everynode/everynode/internal/apiserver/webhookcalls"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// plugin is one of our own admission plugins.
type plugin struct {
	name string
	impl admission.Interface
}

// admit sets up admission: ours first, then policies and webhooks, so that
// those see objects as they will be stored.
func admit(cfg Config, c *genericapiserver.Config, client kubernetes.Interface, loopback *restclient.Config,
	factory informers.SharedInformerFactory, s *security, pods *podaccess.Access) error {
	chain := c.BuildHandlerChainFunc
	c.BuildHandlerChainFunc = func(api http.Handler, c *genericapiserver.Config) http.Handler {
		return chain(nodeauth.WithClient(api), c)
	}
	generic := genericoptions.NewAdmissionOptions()
	own, err := plugins(client, factory, s, &cfg.Options.Options)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(own))
	for _, p := range own {
		generic.Plugins.Register(p.name, func(io.Reader) (admission.Interface, error) { return p.impl, nil })
		names = append(names, p.name)
	}
	// NamespaceLifecycle, the first of the library's, stays in front.
	order := generic.RecommendedPluginOrder
	generic.RecommendedPluginOrder = append(append([]string{order[0]}, names...), order[1:]...)
	if err := charge(generic, factory); err != nil {
		return err
	}
	generic.Decorators = admission.Decorators{metered.Decorator(configured(factory))}
	generic.EnablePlugins, generic.DisablePlugins = cfg.Options.EnablePlugins, cfg.Options.DisablePlugins
	if err := utilerrors.NewAggregate(generic.Validate()); err != nil {
		return fmt.Errorf("%w; the plugins are %s", err, strings.Join(generic.RecommendedPluginOrder, ", "))
	}
	dynamicClient, err := dynamic.NewForConfig(restclient.CopyConfig(loopback))
	if err != nil {
		return fmt.Errorf("make the client for admission: %w", err)
	}
	webhooks := webhookinit.NewPluginInitializer(webhookcalls.New(c, pods, ownGroups()), podaccess.NewServices(client))
	if err := generic.ApplyTo(c, factory, client, dynamicClient, utilfeature.DefaultFeatureGate, c.EffectiveVersion,
		webhooks); err != nil {
		return fmt.Errorf("set up admission: %w", err)
	}
	return nil
}

// charge adds quotas, behind everything else that may refuse a write or change it.
func charge(to *genericoptions.AdmissionOptions, factory informers.SharedInformerFactory) error {
	quotas, err := resourcequota.New(factory.Core().V1().ResourceQuotas().Informer())
	if err != nil {
		return err
	}
	const name = "ResourceQuota"
	to.Plugins.Register(name, func(io.Reader) (admission.Interface, error) { return quotas, nil })
	to.RecommendedPluginOrder = append(to.RecommendedPluginOrder, name)
	return nil
}

// configured returns whether there is admission that somebody configured: webhooks or
// policies. As long as that is not known, there is.
func configured(factory informers.SharedInformerFactory) func() bool {
	return onbindings.Some(factory.Admissionregistration().V1(), func(any) bool { return true })
}

func plugins(client kubernetes.Interface, factory informers.SharedInformerFactory, s *security,
	o *options.Options) ([]plugin, error) {
	classes, runtimes := factory.Scheduling().V1().PriorityClasses(), factory.Node().V1().RuntimeClasses()
	ingresses := factory.Networking().V1().IngressClasses()
	storage, limits := factory.Storage().V1().StorageClasses(), factory.Core().V1().LimitRanges()
	networks, err := o.NodePrefixes()
	if err != nil {
		return nil, err
	}
	podSecurity, err := podsecurity.New(factory.Core().V1().Namespaces().Lister(), client)
	if err != nil {
		return nil, fmt.Errorf("set up pod security: %w", err)
	}
	return []plugin{
		{"FieldManagers", fieldmanagers.New()},
		{"LimitRanger", limitrange.New(limits.Lister(), limits.Informer().HasSynced)},
		{"ServiceAccount", serviceaccount.New(s.getters)},
		{"NodeRestriction", nodeauth.NewRestriction(s.stored, s.authorizer, networks...)},
		{"TaintNodesByCondition", taintnodesbycondition.New()},
		{"NodeStartup", admitstartup.New(bootstrap.ControllerAccount(nodestartup.Account).GetName(), s.startups,
			s.authorizer, clock.RealClock{})},
		{"PodTopologyLabels", podtopologylabels.New(func(ctx context.Context, name string) (*corev1.Node, error) {
			return stored.Cached[*corev1.Node](ctx, s.stored.Nodes, "", name)
		})},
		{"Priority", priority.New(classes.Lister(), classes.Informer().HasSynced)},
		{"DefaultTolerationSeconds", defaulttolerationseconds.New(o.Objects.NotReadySeconds, o.Objects.UnreachableSeconds)},
		{"RuntimeClass", runtimeclass.New(runtimes.Lister(), client.NodeV1().RuntimeClasses(),
			runtimes.Informer().HasSynced)},
		{"DefaultIngressClass", ingressclass.New(ingresses.Lister(), ingresses.Informer().HasSynced)},
		{"DefaultStorageClass", storageclass.New(storage.Lister(), storage.Informer().HasSynced)},
		{"StorageObjectInUseProtection", storageinuse.New()},
		{"PersistentVolumeClaimResize", storageresize.New(storage.Lister(), storage.Informer().HasSynced)},
		{"CertificateApproval", certificates.New(s.authorizer)},
		{"PodSecurity", podSecurity},
		{"RolloutApproval", rolloutapproval.New(s.authorizer, s.rollouts)},
		{"VariantFit", variantfit.New(s.variants)},
		{"LiveContent", livecontent.New(bootstrap.ControllerAccount("daemon-set-controller").GetName(), s.contents)},
		{"ServerTokens", servertokens.New(s.authorizer)},
		{"BuiltInKinds", builtinkinds.New(ownVersions(), offered.Group)},
		{"RBACEscalation", rbac.NewEscalation(s.resolver, s.authorizer, client.RbacV1())},
	}, nil
}
