package dashboard

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/change/rollout"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/dashboard/attention"
	"github.com/everynode/everynode/internal/dashboard/fleet"
	"github.com/everynode/everynode/internal/dashboard/varied"
)

const (
	// tellEvery is how often a page is told of changes at most, and restFactor how much longer
	// than the look at a large cluster the pause after it is, but no longer than mostRest.
	tellEvery  = 250 * time.Millisecond
	restFactor = 2
	mostRest   = time.Second
	// aliveEvery is how often something is written when nothing happens.
	aliveEvery = 15 * time.Second
	// mostLabels is by how many labels the map can be grouped.
	mostLabels = 30
)

// message is one line of a stream. Only what is new is in it.
type message struct {
	Overview *overview  `json:"overview,omitempty"`
	Set      *set       `json:"set,omitempty"`
	Map      *fleet.Map `json:"map,omitempty"`
	Changes  [][2]int   `json:"changes,omitempty"`
	Gone     string     `json:"gone,omitempty"`
}

// overview is what the page shows of the whole cluster.
type overview struct {
	Cluster    string   `json:"cluster"`
	Nodes      int      `json:"nodes"`
	DaemonSets []daemon `json:"daemonSets"`
	Labels     []string `json:"labels"`
	// Attention is what needs somebody.
	Attention []attention.Item `json:"attention"`
	Hidden    string           `json:"hidden,omitempty"`
	// Trouble says why what is shown may be old.
	Trouble string `json:"trouble,omitempty"`
}

// daemon is one line of the list of DaemonSets.
type daemon struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Desired   int32  `json:"desired"`
	Updated   int32  `json:"updated"`
	Available int32  `json:"available"`
	Phase     string `json:"phase,omitempty"`
}

// set is what the page shows of the DaemonSet that is looked at.
type set struct {
	Namespace string                 `json:"namespace"`
	Name      string                 `json:"name"`
	Revision  string                 `json:"revision"`
	Policy    string                 `json:"policy,omitempty"`
	Status    appsv1.DaemonSetStatus `json:"status"`
	Rollout   *rollout.State         `json:"rollout,omitempty"`
	Numbers   map[string]int64       `json:"numbers"`
	Strategy  string                 `json:"strategy"`
	// Content is what belongs to a revision beside the template; nil where that is nothing.
	Content *setContent `json:"content,omitempty"`
	// Lines say which digests the images of its pods have, and what hinders that nodes fetch images before their turn.
	Lines []string `json:"lines,omitempty"`
	// Variants are those of its pods; nil where there are none.
	Variants *varied.Variants `json:"variants,omitempty"`
	// UID and Generation tell which DaemonSet and which spec of it is shown.
	UID        types.UID `json:"uid"`
	Generation int64     `json:"generation"`
	// Unseen says what no controller has taken note of.
	Unseen []string `json:"unseen,omitempty"`
}

// setContent names the ConfigMaps and Secrets that are a part of a DaemonSet's revisions, never what they hold.
type setContent struct {
	Objects []string `json:"objects"`
	// Changing tells that nodes are being given other content than the stable revision's.
	Changing bool `json:"changing"`
	// Lines say what changes, by object and key, and what hinders it.
	Lines []string `json:"lines"`
}

// stream tells a page what there is and what changes, as lines of JSON.
func (d *Dashboard) stream(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	t := &teller{d: d, label: q.Get("group")}
	if of := q.Get("daemonset"); of != "" {
		var err error
		t.namespace, t.name, err = named(of)
		if err != nil {
			answer(w, nil, err)
			return
		}
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	flusher, ok := w.(http.Flusher)
	if !ok {
		http.Error(w, "this connection cannot stream", http.StatusInternalServerError)
		return
	}
	for {
		_, changed := d.cluster.at()
		begin := time.Now()
		lines, err := t.next()
		if err != nil {
			lines = []message{{Gone: err.Error()}}
		}
		for _, line := range lines {
			raw, err := json.Marshal(line)
			if err != nil {
				return
			}
			if _, err := w.Write(append(raw, '\n')); err != nil {
				return // The page is gone.
			}
		}
		if err != nil {
			return
		}
		flusher.Flush()
		if !wait(r.Context(), min(max(tellEvery, restFactor*time.Since(begin)), mostRest), changed) {
			return
		}
	}
}

// wait pauses, and then waits for a change, or until something must be said.
func wait(ctx context.Context, pause time.Duration, changed <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
	}
	select {
	case <-ctx.Done():
		return false
	case <-changed:
	case <-time.After(staleAfter):
	}
	return true
}

// teller knows what one page was told.
type teller struct {
	d                      *Dashboard
	namespace, name, label string

	overview, set string
	fleet         *fleet.Map
	alive         time.Time
}

// next returns what is new. Its error is for the page: what it looks at is gone.
func (t *teller) next() ([]message, error) {
	var out []message
	err := t.d.cluster.look(func(s *survey.Survey, hidden string) error {
		o := overviewOf(s, t.d.config.Name, hidden)
		o.Trouble = t.d.cluster.troubles.text()
		if isNew(&t.overview, o) {
			out = append(out, message{Overview: o})
		}
		var ds *appsv1.DaemonSet
		if t.name != "" {
			if ds = s.DaemonSet(t.namespace, t.name); ds == nil {
				return fmt.Errorf("there is no DaemonSet %s/%s any more", t.namespace, t.name)
			}
		}
		var v *survey.View
		if ds != nil {
			of := setOf(s, ds)
			var err error
			v, err = t.d.cluster.views.of(s, ds)
			if err != nil {
				v, of.Unseen = nil, append(of.Unseen, "Where it stands on each node is not known: "+err.Error())
			}
			of.Variants = varied.Of(s, ds, v)
			if unread := t.d.cluster.ownKinds().unread; unread != "" {
				of.Unseen = append(of.Unseen, unread)
			}
			if isNew(&t.set, of) {
				out = append(out, message{Set: of})
			}
		}
		m := fleet.Of(s, v, t.label)
		changes, same := m.Since(t.fleet)
		switch {
		case !same:
			out = append(out, message{Map: m})
		case len(changes) > 0:
			pairs := make([][2]int, 0, len(changes))
			for _, c := range changes {
				pairs = append(pairs, [2]int{c.Cell, int(c.State)})
			}
			out = append(out, message{Changes: pairs})
		}
		t.fleet = m
		return nil
	})
	if now := time.Now(); len(out) > 0 {
		t.alive = now
	} else if now.Sub(t.alive) > aliveEvery {
		out, t.alive = append(out, message{}), now
	}
	return out, err
}

// isNew reports whether a value differs from the last one, and remembers it.
func isNew(last *string, value any) bool {
	raw, err := json.Marshal(value)
	if err != nil || string(raw) == *last {
		return false
	}
	*last = string(raw)
	return true
}

func overviewOf(s *survey.Survey, name, hidden string) *overview {
	o := &overview{
		Cluster: name, Nodes: len(s.Nodes), DaemonSets: []daemon{}, Labels: fleet.Labels(s.Nodes, mostLabels),
		Attention: attention.Of(s), Hidden: hidden,
	}
	for _, ds := range s.DaemonSets {
		one := daemon{
			Namespace: ds.Namespace, Name: ds.Name, Desired: ds.Status.DesiredNumberScheduled,
			Updated: ds.Status.UpdatedNumberScheduled, Available: ds.Status.NumberAvailable,
		}
		if r := s.Rollout(ds); r != nil {
			one.Phase = string(r.Status.Phase)
		}
		o.DaemonSets = append(o.DaemonSets, one)
	}
	return o
}

func setOf(s *survey.Survey, ds *appsv1.DaemonSet) *set {
	out := &set{
		Namespace: ds.Namespace, Name: ds.Name, Status: ds.Status, Strategy: string(ds.Spec.UpdateStrategy.Type),
		Numbers: map[string]int64{},
		UID:     ds.UID, Generation: ds.Generation, Unseen: s.Unseen(ds),
	}
	newest := int64(0)
	for _, r := range revisionsOf(s, ds) {
		hash := history.HashOf(r)
		out.Numbers[hash] = r.Revision
		if r.Revision > newest {
			newest, out.Revision = r.Revision, hash
		}
	}
	if r := s.Rollout(ds); r != nil {
		state := rollout.StateOf(r, ds.Generation)
		out.Rollout, out.Lines = &state, slices.Concat(state.Images.Lines(), state.Fetch.Lines())
	}
	if p := s.Policy(ds); p != nil {
		out.Policy, out.Content = p.Name, contentOf(p, s.Locate, ds, out.Rollout)
	}
	return out
}

// contentOf reads which objects the policy makes a part of revisions. What it excludes by label is among them: the page
// reads no ConfigMaps and Secrets.
func contentOf(
	p *v1alpha1.RolloutPolicy, locate rolloutpolicy.Locate, ds *appsv1.DaemonSet, r *rollout.State,
) *setContent {
	compiled, err := rolloutpolicy.Follow(p, locate)
	if err != nil || compiled.Content == nil {
		return nil // Of a policy that cannot be followed the rollout speaks.
	}
	out := &setContent{Objects: []string{}, Lines: []string{}}
	for _, ref := range content.Refs(&ds.Spec.Template.Spec) {
		if compiled.Content.Takes(ref) {
			out.Objects = append(out.Objects, ref.String())
		}
	}
	if r != nil {
		stable, target := content.IDOf(r.StableRevision), content.IDOf(r.TargetRevision)
		out.Changing = !r.Finished && r.StableRevision != "" && stable != target
		out.Lines = append(out.Lines, r.Content.Lines()...)
	}
	return out
}
