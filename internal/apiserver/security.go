package apiserver

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/apiserver/admission/livecontent"
	"github.com/everynode/everynode/internal/apiserver/admission/nodestartup"
	"github.com/everynode/everynode/internal/apiserver/admission/rolloutapproval"
	"github.com/everynode/everynode/internal/apiserver/admission/variantfit"
	"github.com/everynode/everynode/internal/apiserver/authn"
	"github.com/everynode/everynode/internal/apiserver/bootstrap"
	"github.com/everynode/everynode/internal/apiserver/nodeauth"
	"github.com/everynode/everynode/internal/apiserver/rbac"
	"github.com/everynode/everynode/internal/apiserver/registry"
	"github.com/everynode/everynode/internal/apiserver/resource"
	"github.com/everynode/everynode/internal/apiserver/revocation"
)

// security answers who a caller is and what a caller may do.
type security struct {
	authn.Authenticators
	revoked    *revocation.List
	issuer     *authn.Tokens
	audiences  authenticator.Audiences
	authorizer authorizer.Authorizer
	rules      authorizer.RuleResolver
	resolver   *rbac.Resolver
	// getters reads from the storages, which are there once use was called.
	getters *authn.Stored
	// stored is what decides about nodes; it is filled once the storages are there.
	stored *nodeauth.Stored
	// rollouts is what decides about approvals; it is filled then, too.
	rollouts *rolloutapproval.Stored
	// contents are the copies that running pods can be pointed at; it is filled then, too.
	contents *livecontent.Stored
	// variants are compared with DaemonSets; it is filled then, too.
	variants *variantfit.Stored
	// startups are what new nodes start; it is filled then, too.
	startups *nodestartup.Stored
	// nodes is the storage of Nodes, once it is there.
	nodes *resource.REST
}

func newSecurity(served context.Context, cfg Config, client kubernetes.Interface,
	factory informers.SharedInformerFactory) (*security, error) {
	getters := &authn.Stored{}
	accounts := cfg.Options.ServiceAccounts
	issuer, err := authn.NewTokens(authn.TokensConfig{
		Keys: cfg.PKI, Getters: getters, Issuers: accounts.Issuers, Audiences: accounts.Audiences,
		Longest: accounts.MaxExpiration,
	})
	if err != nil {
		return nil, fmt.Errorf("set up service account tokens: %w", err)
	}
	revoked := revocation.New(client)
	known := cfg.Options.Authentication.Known()
	others, err := authn.OtherIssuers(served, known.JWT, known.SigningAlgorithms, accounts.Issuers)
	if err != nil {
		return nil, err
	}
	authenticators, err := authn.New(authn.Config{
		ClientCAs: clientCA{cfg.PKI}.VerifyOptions, Refuse: revoked.Check, Tokens: issuer,
		BootstrapSecrets: getters.JoinTokens(), ExtraTokens: others, Anonymous: &known.Anonymous,
	})
	if err != nil {
		return nil, fmt.Errorf("set up authentication: %w", err)
	}
	s := &security{Authenticators: authenticators, revoked: revoked, issuer: issuer, getters: getters,
		stored: &nodeauth.Stored{}, rollouts: &rolloutapproval.Stored{}, contents: &livecontent.Stored{},
		variants: &variantfit.Stored{},
		startups: &nodestartup.Stored{}, audiences: issuer.Audiences()}
	s.resolver, err = rbac.NewResolver(factory)
	if err != nil {
		return nil, fmt.Errorf("set up RBAC: %w", err)
	}
	roles := rbac.NewAuthorizer(s.resolver)
	s.rules = roles
	s.authorizer, err = union.New(
		union.NamedAuthorizer{AuthorizerName: "masters",
			Authorizer: authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup)},
		union.NamedAuthorizer{AuthorizerName: "node", Authorizer: nodeauth.NewAuthorizer(s.stored,
			cfg.Options.NodesReadAllNodes)},
		union.NamedAuthorizer{AuthorizerName: "rbac", Authorizer: roles},
	)
	if err != nil {
		return nil, fmt.Errorf("set up authorization: %w", err)
	}
	return s, nil
}

// use gives those who decide about tokens and nodes the storages to look into.
func (s *security) use(served registry.Served) error {
	core, volumes := served[corev1.SchemeGroupVersion], served[storagev1.SchemeGroupVersion]
	var missing []string
	storage := func(of map[string]rest.Storage, name string) *resource.REST {
		r, ok := of[name].(*resource.REST)
		if !ok {
			missing = append(missing, name)
		}
		return r
	}
	pods, nodes, drivers := storage(core, "pods"), storage(core, "nodes"), storage(volumes, "csidrivers")
	claimed, attachments := storage(core, "persistentvolumes"), storage(volumes, "volumeattachments")
	slices := storage(served[resourcev1.SchemeGroupVersion], "resourceslices")
	secrets, accounts, maps := storage(core, "secrets"), storage(core, "serviceaccounts"), storage(core, "configmaps")
	own := served[v1alpha1.GroupVersion]
	sets, policies := storage(served[appsv1.SchemeGroupVersion], "daemonsets"), storage(own, "rolloutpolicies")
	startups, variants := storage(own, "nodestartups"), storage(own, "daemonsetvariants")
	if len(missing) > 0 {
		return fmt.Errorf("these are not served from storages: %s", strings.Join(missing, ", "))
	}
	s.getters.Pods, s.getters.Nodes, s.getters.Secrets, s.getters.ServiceAccounts = pods, nodes, secrets, accounts
	s.contents.ConfigMaps, s.contents.Secrets = maps, secrets
	s.rollouts.DaemonSets, s.rollouts.Policies = sets, policies
	s.variants.DaemonSets, s.variants.Variants = sets, variants
	s.startups.Startups, s.nodes = startups, nodes
	s.stored.Pods, s.stored.Nodes, s.stored.CSIDrivers = pods, nodes, drivers
	s.stored.Volumes, s.stored.Attachments, s.stored.Slices = claimed, attachments, slices
	return nil
}

// rolesReady delays readiness until the roles are known, so that nobody is
// refused only because the server has just started.
func (s *security) rolesReady(ctx context.Context) error {
	for !s.resolver.HasSynced() {
		if err := pause(ctx); err != nil {
			return fmt.Errorf("wait for roles and bindings: %w", err)
		}
	}
	return nil
}

// defaultsKnown delays readiness until the default roles, which were just written,
// have been read: the control loops work with nothing else.
func (s *security) defaultsKnown(ctx context.Context) error {
	var roles, bindings []string
	for _, r := range bootstrap.ClusterRoles() {
		roles = append(roles, r.Name)
	}
	for _, b := range bootstrap.ClusterRoleBindings() {
		bindings = append(bindings, b.Name)
	}
	for !s.resolver.Knows(roles, bindings) {
		if err := pause(ctx); err != nil {
			return fmt.Errorf("wait for the default roles: %w", err)
		}
	}
	return nil
}

// pause waits a moment, or returns why there is no use in waiting.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(5 * time.Millisecond):
		return nil
	}
}
