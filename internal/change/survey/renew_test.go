package survey_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/survey"
	"github.com/everynode/everynode/internal/change/survey/surveytest"
	"github.com/everynode/everynode/internal/change/variant"
)

// changing is a cluster in which something happens all the time.
type changing struct {
	*surveytest.World
	rng    *rand.Rand
	ds     *appsv1.DaemonSet
	hashes []string
	made   int
	// set are the variants; nil for none.
	set *variant.Set
}

// vary gives the DaemonSet variants: one of large nodes, and one that fails on those without a label.
func (c *changing) vary() {
	var all []variant.Variant
	for name, formula := range map[string]string{"l": "2.0", "m": "node.labels['cores'] == '' ? 1.0 : 3.0"} {
		v := &v1alpha1.DaemonSetVariant{ObjectMeta: metav1.ObjectMeta{Namespace: c.ds.Namespace, Name: name, UID: types.UID(name)}}
		v.Spec.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"size": name}}
		v.Spec.Resources = map[string]v1alpha1.VariantResources{
			"agent": {Requests: map[corev1.ResourceName]string{corev1.ResourceCPU: formula}},
		}
		c.Objects.Variants = append(c.Objects.Variants, v)
		all = append(all, variant.Of(v))
	}
	var err error
	c.set, err = variant.NewSet(all)
	if err != nil {
		panic(err)
	}
}

// sign has a pod be by the variant of its node, or of another one.
func (c *changing) sign(p *corev1.Pod, hash string) {
	if c.set == nil || c.rng.IntN(3) == 0 {
		return
	}
	of := variant.Node{Name: p.Spec.NodeName, Labels: map[string]string{
		"size": []string{"l", "m", ""}[c.rng.IntN(3)], "cores": "4"}}
	o := c.set.On(&c.ds.Spec.Template).Of(&of)
	if text, err := o.Mark.Text(p.Name); err == nil && text != "" {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, variant.Annotation, text)
	}
	p.Labels[content.RevisionLabel] = content.WithVariants(hash, c.set.ID)
}

func (c *changing) name() string { return fmt.Sprintf("node-%d", c.rng.IntN(8)) }

// node returns a copy of a node that takes its place, nil if there is none of that name.
func (c *changing) node(name string) *corev1.Node {
	i := slices.IndexFunc(c.Objects.Nodes, func(n *corev1.Node) bool { return n.Name == name })
	if i < 0 {
		return nil
	}
	c.Objects.Nodes = slices.Clone(c.Objects.Nodes)
	c.Objects.Nodes[i] = c.Objects.Nodes[i].DeepCopy()
	return c.Objects.Nodes[i]
}

func (c *changing) pod() *corev1.Pod {
	if len(c.Objects.Pods) == 0 {
		return nil
	}
	i := c.rng.IntN(len(c.Objects.Pods))
	c.Objects.Pods = slices.Clone(c.Objects.Pods)
	c.Objects.Pods[i] = c.Objects.Pods[i].DeepCopy()
	return c.Objects.Pods[i]
}

// happen does one thing, and returns what.
func (c *changing) happen() string {
	now := metav1.NewTime(c.Objects.Now)
	switch name := c.name(); c.rng.IntN(10) {
	case 0:
		if c.node(name) != nil {
			return ""
		}
		c.Objects.Nodes = slices.Clone(c.Objects.Nodes)
		c.Node(name)
		return name + " joins"
	case 1:
		before := len(c.Objects.Nodes)
		c.Objects.Nodes = slices.DeleteFunc(slices.Clone(c.Objects.Nodes), func(n *corev1.Node) bool { return n.Name == name && c.rng.IntN(3) == 0 })
		if len(c.Objects.Nodes) < before {
			return name + " leaves"
		}
	case 2:
		if n := c.node(name); n != nil {
			status := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}[c.rng.IntN(3)]
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: now}}
			if now.Unix()%3 == 0 {
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
					Type: corev1.NodeDrained, Status: corev1.ConditionTrue, LastTransitionTime: now})
			}
			return name + " is ready: " + string(status)
		}
	case 3:
		if n := c.node(name); n != nil {
			n.Labels["size"] = []string{"l", "m", ""}[c.rng.IntN(3)]
			delete(n.Labels, "cores")
			if c.rng.IntN(2) == 0 {
				n.Labels["cores"] = "4"
			}
			n.Spec.Taints = nil
			if c.rng.IntN(2) == 0 {
				surveytest.Tainted(n)
			}
			return name + " has other taints"
		}
	case 4, 5:
		before := len(c.Objects.Pods)
		victim := c.pod()
		c.Objects.Pods = slices.DeleteFunc(slices.Clone(c.Objects.Pods), func(p *corev1.Pod) bool { return p == victim })
		if len(c.Objects.Pods) < before {
			return victim.Name + " goes"
		}
	case 6, 7:
		hash := c.hashes[c.rng.IntN(len(c.hashes))]
		c.Objects.Pods = slices.Clone(c.Objects.Pods)
		c.Pod(c.ds, name, hash, func(p *corev1.Pod) {
			c.made++
			p.Name, p.UID, p.CreationTimestamp = fmt.Sprintf("pod-%d", c.made), types.UID(fmt.Sprint(c.made)), now
			for i := range p.Status.Conditions {
				p.Status.Conditions[i].LastTransitionTime = now
			}
			c.sign(p, hash)
		})
		return "a pod of " + hash + " at " + name
	case 8:
		if p := c.pod(); p != nil {
			status := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[c.rng.IntN(2)]
			p.Status.Conditions[1].Status, p.Status.Conditions[1].LastTransitionTime = status, now
			return p.Name + " is ready: " + string(status)
		}
	case 9:
		if p := c.pod(); p != nil && p.DeletionTimestamp == nil {
			p.DeletionTimestamp = &now
			return p.Name + " ends"
		}
	}
	return ""
}

// TestRenewedIsNew renews a view again and again, and compares it with one that is made again.
func TestRenewedIsNew(t *testing.T) {
	for seed := range uint64(400) {
		c := &changing{World: surveytest.New(t), rng: rand.New(rand.NewPCG(seed, 1))}
		c.ds, c.hashes = c.DaemonSet("agent", "a:1", "a:2", "a:3")
		c.ds.Spec.MinReadySeconds = int32(c.rng.IntN(2) * 20)
		if seed%2 == 1 {
			// It stops for no failure: when it stopped, and why, is what a new view only knows from the status.
			c.Policy("patient", "failure: {max: 100%, min: 1000}\nnodeFaults: {max: 100%}\npace: {nodesPerMinute: 5}")
			c.Rollout(c.ds, v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseProgressing, StableRevision: c.hashes[0], TargetRevision: c.hashes[2]})
		}
		if seed%4 >= 2 {
			c.vary()
		}
		view, err := survey.New(c.Objects).View(c.ds)
		if err != nil {
			t.Fatal(err)
		}
		var done []string
		for range 60 {
			for range c.rng.IntN(4) {
				done = append(done, c.happen())
			}
			c.Objects.Now = c.Objects.Now.Add(time.Duration(c.rng.IntN(20)) * time.Second)
			s := survey.New(c.Objects)
			if !view.Renew(s) {
				t.Fatalf("seed %d: nothing but nodes and pods changed, and the view cannot be renewed", seed)
			}
			again, err := s.View(c.ds)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := fmt.Sprintf("%+v", view.Status.Steps), fmt.Sprintf("%+v", again.Status.Steps); got != want {
				t.Fatalf("seed %d: renewed steps are %s\nmade again %s\nafter %q", seed, got, want, done)
			}
			nodes, _ := view.Choices()
			if want, _ := again.Choices(); !maps.Equal(nodes, want) {
				t.Fatalf("seed %d: renewed variants choose %v, made again %v", seed, nodes, want)
			}
			for _, n := range s.Nodes {
				got, want := view.Standing(n.Name), again.Standing(n.Name)
				if got.Verdict != want.Verdict || got.Has != want.Has || got.Wants != want.Wants || got.Pod != want.Pod || !slices.Equal(got.Reasons, want.Reasons) {
					t.Fatalf("seed %d, %s: renewed %+v\nmade again %+v\nafter %q", seed, n.Name, got, want, done)
				}
			}
		}
	}
}

// TestOtherRulesMakeAnotherView changes what a view is made by, one thing at a time.
func TestOtherRulesMakeAnotherView(t *testing.T) {
	w, ds, hashes := surveytest.Fleet(t)
	w.Policy("careful", "pace: {nodesPerMinute: 5}")
	w.Rollout(ds, v1alpha1.DaemonSetRolloutStatus{Phase: v1alpha1.PhaseProgressing, Step: "first", StableRevision: hashes[0], TargetRevision: hashes[1]})
	rolled := func(edit func(r *v1alpha1.DaemonSetRollout)) func(o *survey.Objects) {
		return func(o *survey.Objects) {
			r := o.Rollouts[0].DeepCopy()
			edit(r)
			o.Rollouts = []*v1alpha1.DaemonSetRollout{r}
		}
	}
	other := func(edit func(ds *appsv1.DaemonSet)) func(o *survey.Objects) {
		return func(o *survey.Objects) {
			changed := ds.DeepCopy()
			edit(changed)
			o.DaemonSets = []*appsv1.DaemonSet{changed}
		}
	}
	for what, c := range map[string]struct {
		edit  func(o *survey.Objects)
		renew bool
	}{
		"nothing":                  {func(*survey.Objects) {}, true},
		"the status":               {other(func(ds *appsv1.DaemonSet) { ds.Status.NumberReady++ }), true},
		"how far the step is":      {rolled(func(r *v1alpha1.DaemonSetRollout) { r.Status.Message = "3 of 5" }), true},
		"the spec":                 {other(func(ds *appsv1.DaemonSet) { ds.Generation++ }), false},
		"another of the same name": {other(func(ds *appsv1.DaemonSet) { ds.UID = "other" }), false},
		"a collision":              {other(func(ds *appsv1.DaemonSet) { ds.Status.CollisionCount = new(int32) }), false},
		"it is gone":               {func(o *survey.Objects) { o.DaemonSets = nil }, false},
		"a revision more":          {func(o *survey.Objects) { o.Revisions = append(slices.Clone(o.Revisions), o.Revisions[0].DeepCopy()) }, false},
		"a revision less":          {func(o *survey.Objects) { o.Revisions = o.Revisions[1:] }, false},
		"a revision has a new number": {func(o *survey.Objects) {
			o.Revisions = []*appsv1.ControllerRevision{o.Revisions[0].DeepCopy(), o.Revisions[1]}
		}, false},
		"a variant": {func(o *survey.Objects) {
			o.Variants = []*v1alpha1.DaemonSetVariant{{ObjectMeta: metav1.ObjectMeta{Namespace: ds.Namespace, UID: "v"}}}
		}, false},
		"a variant of others": {func(o *survey.Objects) {
			o.Variants = []*v1alpha1.DaemonSetVariant{{ObjectMeta: metav1.ObjectMeta{Namespace: "other", UID: "v"}}}
		}, true},
		"the policy":          {func(o *survey.Objects) { o.Policies = []*v1alpha1.RolloutPolicy{o.Policies[0].DeepCopy()} }, false},
		"no policy":           {func(o *survey.Objects) { o.Policies = nil }, false},
		"no rollout":          {func(o *survey.Objects) { o.Rollouts = nil }, false},
		"another rollout":     {rolled(func(r *v1alpha1.DaemonSetRollout) { r.UID = "other" }), false},
		"what is asked of it": {rolled(func(r *v1alpha1.DaemonSetRollout) { r.Generation++ }), false},
		"its step":            {rolled(func(r *v1alpha1.DaemonSetRollout) { r.Status.Step = "all" }), false},
		"its phase":           {rolled(func(r *v1alpha1.DaemonSetRollout) { r.Status.Phase = v1alpha1.PhaseHalted }), false},
		"its target":          {rolled(func(r *v1alpha1.DaemonSetRollout) { r.Status.TargetRevision = hashes[0] }), false},
		"what is stable":      {rolled(func(r *v1alpha1.DaemonSetRollout) { r.Status.StableRevision = hashes[1] }), false},
	} {
		view, err := survey.New(w.Objects).View(ds)
		if err != nil {
			t.Fatal(err)
		}
		objects := w.Objects
		c.edit(&objects)
		if renewed := view.Renew(survey.New(objects)); renewed != c.renew {
			t.Errorf("%s changes, and that the view can be renewed is %v", what, renewed)
		}
	}
}
