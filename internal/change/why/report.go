package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/rollout"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/controller/daemonset/course/standing"
	"github.com/everynode/everynode/internal/node"
	"github.com/everynode/everynode/internal/objects/nodestartup"
)

// Verdicts are all, in the order in which they are shown: what is wrong first.
var Verdicts = []standing.Verdict{
	standing.FailedRevision, standing.NoRoom, standing.NodeFault, standing.InMaintenance, standing.Changing,
	standing.Waiting, standing.Current, standing.NotSelected,
}

// NodeReport is why one node is where it is.
type NodeReport struct {
	Node string `json:"node"`
	// Fault is what is wrong with the node itself.
	Fault string `json:"fault,omitempty"`
	// Maintenance is what its conditions say of work on it, also of such as is planned.
	Maintenance []string `json:"maintenance,omitempty"`
	// Starting says which group of a NodeStartup the node starts, and what it waits for.
	Starting string `json:"starting,omitempty"`
	// NotClosed says why it stayed open when a NodeStartup was to close it.
	NotClosed string `json:"notClosed,omitempty"`
	// Held are pods that its agent does not start yet, since its machine has started again.
	Held       []survey.Held `json:"held,omitempty"`
	DaemonSets []Place       `json:"daemonSets"`
	// Missing says what could not be read, and why.
	Missing []string `json:"missing,omitempty"`
}

// Place is one DaemonSet on one node.
type Place struct {
	Namespace string `json:"namespace"`
	DaemonSet string `json:"daemonSet"`
	Node      string `json:"node"`
	Verdict   string `json:"verdict"`
	// Since is from when on, where that shows.
	Since *time.Time `json:"since,omitempty"`
	// Reasons are all that is known, the one that decided first.
	Reasons []string `json:"reasons,omitempty"`
	// Revision is what the node has, Wanted what it is to have.
	Revision string `json:"revision,omitempty"`
	Wanted   string `json:"wanted,omitempty"`
	Step     string `json:"step,omitempty"`
	Pod      string `json:"pod,omitempty"`
	// Variant is what the pod was made by, where that is not the template alone.
	Variant string `json:"variant,omitempty"`
	PodUID  string `json:"-"`
	// Container is one that failed; Log are its last lines.
	Container string   `json:"container,omitempty"`
	Restarted bool     `json:"-"`
	Log       []string `json:"log,omitempty"`
	// Events are the latest about the pod, the newest last.
	Events []string `json:"events,omitempty"`
	// Missing says what could not be read, and why.
	Missing []string `json:"missing,omitempty"`
}

// SetReport is where one DaemonSet stands on all nodes.
type SetReport struct {
	Namespace string `json:"namespace"`
	DaemonSet string `json:"daemonSet"`
	Revision  string `json:"revision"`
	Policy    string `json:"policy,omitempty"`
	// Phase and Message are those of the rollout's object; Stable and Target are revisions. Empty without a policy.
	Phase   string `json:"phase,omitempty"`
	Message string `json:"message,omitempty"`
	Step    string `json:"step,omitempty"`
	Stable  string `json:"stable,omitempty"`
	Target  string `json:"target,omitempty"`
	// Content is what the target holds beside its template.
	Content *v1alpha1.ContentStatus `json:"content,omitempty"`
	// Images are what tags are resolved to.
	Images *v1alpha1.ImagesStatus `json:"images,omitempty"`
	// Fetch is what hinders that nodes fetch images before their turn.
	Fetch  *v1alpha1.FetchStatus `json:"fetch,omitempty"`
	Nodes  int                   `json:"nodes"`
	Groups []Group               `json:"groups"`
	// Unseen says what no controller has taken note of.
	Unseen []string `json:"unseen,omitempty"`
	// Missing says what could not be read, and why.
	Missing []string `json:"missing,omitempty"`
}

// Group is the nodes of one verdict.
type Group struct {
	Verdict string `json:"verdict"`
	Count   int    `json:"count"`
	// Nodes are the first three, or all of the verdict that was asked for.
	Nodes []Place `json:"nodes,omitempty"`
}

// shown is how many nodes of a verdict are named.
const shown = 3

// Node reports about one node; only of one DaemonSet unless it is nil.
func Node(s *survey.Survey, name string, only *appsv1.DaemonSet) (*NodeReport, error) {
	if s.Node(name) == nil {
		return nil, fmt.Errorf("there is no node %q", name)
	}
	r := &NodeReport{Node: name, DaemonSets: []Place{}}
	for _, ds := range s.DaemonSets {
		if only != nil && ds.UID != only.UID {
			continue
		}
		v, err := s.View(ds)
		if err != nil {
			return nil, err
		}
		p := place(v, name)
		p.Reasons = append(p.Reasons, s.Unseen(ds)...)
		r.DaemonSets = append(r.DaemonSets, p)
	}
	r.Fault, r.Starting, r.Held = s.Fault(name), s.Starting(name), s.Held(name)
	r.Maintenance = node.AboutMaintenance(s.Node(name))
	r.NotClosed = s.Node(name).Annotations[nodestartup.NotClosedAnnotation]
	rank := func(p Place) int { return slices.Index(Verdicts, standing.Verdict(p.Verdict)) }
	slices.SortStableFunc(r.DaemonSets, func(a, b Place) int { return rank(a) - rank(b) })
	return r, nil
}

func place(v *survey.View, name string) Place {
	st := v.Standing(name)
	p := Place{
		Namespace: v.DaemonSet.Namespace, DaemonSet: v.DaemonSet.Name, Node: name, Verdict: string(st.Verdict),
		Revision: revision(v, st.Has), Wanted: revision(v, st.Wants), Step: st.Step,
		Container: st.Container, Restarted: st.Restarted,
	}
	for _, reason := range st.Reasons {
		p.Reasons = append(p.Reasons, numbered(v, reason))
	}
	has, kept := v.Variant(name)
	p.Variant = has
	if kept != "" {
		p.Reasons = append(p.Reasons, kept)
	}
	if !st.Since.IsZero() {
		at := st.Since.UTC()
		p.Since = &at
	}
	if st.Pod != nil {
		p.Pod, p.PodUID = st.Pod.Name, string(st.Pod.UID)
	}
	return p
}

// revision names a revision by its number and hash.
func revision(v *survey.View, hash string) string {
	if n := v.Numbers[hash]; n > 0 {
		return fmt.Sprintf("%d (%s)", n, hash)
	}
	return hash
}

// numbered adds the numbers of revisions to a text that names them by their hashes.
func numbered(v *survey.View, text string) string {
	// The name of a template's revision is the beginning of those with content.
	names := slices.SortedFunc(maps.Keys(v.Numbers), func(a, b string) int {
		return cmp.Or(len(b)-len(a), cmp.Compare(a, b))
	})
	for _, hash := range names {
		text = strings.ReplaceAll(text, "revision "+hash, "revision "+revision(v, hash))
	}
	return text
}

// Set reports about one DaemonSet. All nodes of a verdict are listed if it is asked for; then the others are left out.
func Set(s *survey.Survey, ds *appsv1.DaemonSet, all standing.Verdict) (*SetReport, error) {
	v, err := s.View(ds)
	if err != nil {
		return nil, err
	}
	r := &SetReport{Namespace: ds.Namespace, DaemonSet: ds.Name, Revision: revision(v, v.Revision), Nodes: len(s.Nodes),
		Groups: []Group{}, Unseen: s.Unseen(ds)}
	if v.Policy != nil {
		r.Policy = v.Policy.Name
	}
	if v.Rollout != nil {
		status := &v.Rollout.Status
		r.Content, r.Images, r.Fetch = status.Content, status.Images, status.Fetch
		r.Phase, r.Message, r.Step = string(status.Phase), numbered(v, rollout.About(v.Rollout, status.Message)), status.Step
		r.Stable, r.Target = revision(v, status.StableRevision), revision(v, status.TargetRevision)
	}
	nodes := map[standing.Verdict][]string{}
	for _, n := range s.Nodes {
		verdict := v.Verdict(n.Name)
		nodes[verdict] = append(nodes[verdict], n.Name)
	}
	for _, verdict := range Verdicts {
		names := nodes[verdict]
		if len(names) == 0 || all != "" && verdict != all {
			continue
		}
		g := Group{Verdict: string(verdict), Count: len(names)}
		if all == "" {
			names = names[:min(shown, len(names))]
		}
		for _, name := range names {
			g.Nodes = append(g.Nodes, place(v, name))
		}
		r.Groups = append(r.Groups, g)
	}
	return r, nil
}
