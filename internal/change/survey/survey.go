package survey

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/fetch"
	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/controller/nodestartup/plan"
	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/objects/pod"
)

// Objects is what was read from the API, all namespaces alike. Nothing in it is changed.
type Objects struct {
	Now        time.Time
	Nodes      []*corev1.Node
	Pods       []*corev1.Pod
	DaemonSets []*appsv1.DaemonSet
	Revisions  []*appsv1.ControllerRevision
	// Policies and Rollouts are empty where the API does not have these kinds.
	Policies []*v1alpha1.RolloutPolicy
	Rollouts []*v1alpha1.DaemonSetRollout
	// Startups are empty where the API does not have NodeStartups, or does not show them.
	Startups []*v1alpha1.NodeStartup
	// Variants are empty where the API does not have DaemonSetVariants, or does not show them.
	Variants []*v1alpha1.DaemonSetVariant
	// Stored are the variants that there are, where a plan is about others; Varied tells that it is.
	Stored []*v1alpha1.DaemonSetVariant
	Varied bool
	// Beside tells that another controller makes the pods, where that is known before anything shows it.
	Beside bool
	// Foreign tells that the API server is not Everynode's, where that is known.
	Foreign bool
	// Edits are changes of content that a plan is about, by the DaemonSet whose revision they change.
	Edits map[types.UID][]content.Edit
	// Holdings are what ConfigMaps and Secrets hold, or would by a plan, by namespace; nil where nobody has looked.
	Holdings map[string]*Holdings
	// Locate finds time zones.
	Locate rolloutpolicy.Locate
}

// Survey is the objects in order.
type Survey struct {
	Objects
	nodes map[string]*corev1.Node
	// byOwner are the pods of each DaemonSet, by the node that they are on or meant for.
	byOwner map[types.UID]map[string][]*corev1.Pod
	onNode  map[string][]*corev1.Pod
	// fetchers are the pods that fetch images, by the UID of the daemon's pod after which these are needed.
	fetchers map[types.UID]*corev1.Pod
	cluster  *fit.Cluster
	// listed are views that were needed to say for which daemons nodes wait that start.
	listed map[types.UID]*View
	// given are the DaemonSets as they are stored.
	given []*appsv1.DaemonSet
	// beside is Beside, or that a DaemonSet is taken over, or a NodeStartup followed, where another controller makes the
	// pods.
	beside bool
}

// New puts objects in order. DaemonSets that are taken over beside another controller have the update strategy of their
// author.
func New(o Objects) *Survey {
	s := &Survey{
		Objects: o, given: o.DaemonSets, nodes: map[string]*corev1.Node{},
		byOwner: map[types.UID]map[string][]*corev1.Pod{}, onNode: map[string][]*corev1.Pod{},
		fetchers: map[types.UID]*corev1.Pod{},
	}
	for _, n := range o.Nodes {
		s.nodes[n.Name] = n
	}
	for _, p := range o.Pods {
		target := pod.TargetNode(p)
		if p.Spec.NodeName != "" {
			s.onNode[p.Spec.NodeName] = append(s.onNode[p.Spec.NodeName], p)
		}
		if fetchpod.Is(p) {
			after, _ := fetchpod.Of(p)
			s.fetchers[after] = p
		}
		owner := belongings.OwnerOf(p)
		if owner == "" {
			continue
		}
		byNode := s.byOwner[owner]
		if byNode == nil {
			byNode = map[string][]*corev1.Pod{}
			s.byOwner[owner] = byNode
		}
		byNode[target] = append(byNode[target], p)
	}
	s.Nodes, s.DaemonSets, s.beside = slices.Clone(o.Nodes), slices.Clone(o.DaemonSets), o.Beside
	for i, ds := range s.DaemonSets {
		s.beside = s.beside || admit.Taken(ds)
		s.DaemonSets[i] = admit.AsWritten(ds)
	}
	s.beside = s.beside || slices.ContainsFunc(o.Startups, plan.Beside)
	slices.SortFunc(s.Nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(s.DaemonSets, func(a, b *appsv1.DaemonSet) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return s
}

// fetched is what a daemon's pod, or the pod that fetches after it, says of images for the one that comes next.
func (s *Survey) fetched(daemon *corev1.Pod) fetch.Report {
	by := s.fetchers[daemon.UID]
	said := fetchReport(daemon)
	if by == nil {
		return said
	}
	_, revision := fetchpod.Of(by)
	if said.Revision == revision {
		return said
	}
	says := fetchpod.Read(by, fetchpod.Answer{})
	return fetch.Report{Revision: revision, At: by.CreationTimestamp.UTC(), Reason: says.Reason, Why: says.Why}
}

// fetchReport is what a daemon's pod itself says of that.
func fetchReport(daemon *corev1.Pod) fetch.Report {
	r := fetch.ReportOf(daemon)
	if r != (fetch.Report{}) {
		return r
	}
	return fetchpod.Noted(daemon)
}

// Given are the objects of which this is a survey, for another one of nearly the same.
func (s *Survey) Given() Objects {
	o := s.Objects
	o.DaemonSets = s.given
	return o
}

// Node returns the node of that name, nil if there is none.
func (s *Survey) Node(name string) *corev1.Node { return s.nodes[name] }

// DaemonSet returns the DaemonSet of that name, nil if there is none.
func (s *Survey) DaemonSet(namespace, name string) *appsv1.DaemonSet {
	for _, ds := range s.DaemonSets {
		if ds.Namespace == namespace && ds.Name == name {
			return ds
		}
	}
	return nil
}

// Beside reports whether another controller makes pods of DaemonSets that follow policies.
func (s *Survey) Beside() bool { return s.beside }

// UnusedVariant reports whether a variant chooses the DaemonSet and changes nothing: another controller makes its pods,
// and it follows no policy by which admission would give them a variant.
func (s *Survey) UnusedVariant(ds *appsv1.DaemonSet) bool {
	return s.beside && s.Policy(ds) == nil && slices.ContainsFunc(s.Variants, func(v *v1alpha1.DaemonSetVariant) bool {
		return variant.Selects(v, ds)
	})
}

// Cluster is what the scheduler would know.
func (s *Survey) Cluster() *fit.Cluster {
	if s.cluster != nil {
		return s.cluster
	}
	s.cluster = fit.NewCluster()
	for _, n := range s.Nodes {
		s.cluster.SetNode(n)
	}
	for _, p := range s.Pods {
		if p.Spec.NodeName != "" && !pod.IsTerminal(p) {
			s.cluster.SetPod(p)
		}
	}
	return s.cluster
}

// Policy returns the policy that counts for the DaemonSet, nil if there is none.
func (s *Survey) Policy(ds *appsv1.DaemonSet) *v1alpha1.RolloutPolicy {
	return rolloutpolicy.Choose(s.Policies, ds.Namespace, ds.Labels)
}

// Rollout returns the DaemonSet's rollout, nil if there is none. One that another DaemonSet of the name has left is not
// its own.
func (s *Survey) Rollout(ds *appsv1.DaemonSet) *v1alpha1.DaemonSetRollout {
	for _, r := range s.Rollouts {
		if r.Namespace == ds.Namespace && r.Name == ds.Name && r.Labels[rollouts.OwnerLabel] == string(ds.UID) {
			return r
		}
	}
	return nil
}

// Fault is what is wrong with the node itself; "" if nothing is.
func (s *Survey) Fault(name string) string {
	n := s.nodes[name]
	if n == nil {
		return ""
	}
	why, _, _ := node.Fault(n)
	return why
}
