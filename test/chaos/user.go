package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/everynode/everynode/internal/simulator/illness"
	"github.com/everynode/everynode/test/chaos/author"
	"github.com/everynode/everynode/test/chaos/describe"
	"github.com/everynode/everynode/test/chaos/ground"
	"github.com/everynode/everynode/test/chaos/history"
	"github.com/everynode/everynode/test/chaos/history/variants/molds"
	"github.com/everynode/everynode/test/chaos/history/wish"
	"github.com/everynode/everynode/test/chaos/plan"
	"github.com/everynode/everynode/test/chaos/startup"
	"github.com/everynode/everynode/test/chaos/strategies"
	"github.com/everynode/everynode/test/chaos/tailor"
)

// The names that users give.
const (
	namespace = metav1.NamespaceDefault
	appLabel  = wish.UserKey + "app"
	poolLabel = wish.UserKey + "pool"
	offTaint  = wish.UserKey + "off"
	goodImage = "everynode.io/demo:v1"
	slowImage = ground.SlowImage
	badImage  = "everynode.io/demo:fail"
)

// callTimeout bounds one request of a user's.
const callTimeout = 10 * time.Second

// user does what users do, one thing after another.
type user struct {
	cluster cluster
	journal *journal
	// base is a specification with all defaults filled in, as the API does.
	base      *appsv1.DaemonSet
	templates int
	left      []string // nodes that left
	made      int
	author    *author.Author // nil where there is no content
	kind      plan.Kind
	plan      plan.Plan
	tailor    *tailor.Tailor
}

func newUser(c cluster, j *journal, p plan.Plan) *user {
	u := &user{cluster: c, journal: j, kind: p.Kind, plan: p}
	u.tailor = &tailor.Tailor{API: c.own, Namespace: namespace, Wrote: u.wrote, Deleted: u.deleted, Note: j.note}
	if p.Trouble == plan.Content {
		u.author = &author.Author{API: c.api, Namespace: namespace, Reads: p.Reads, Wrote: u.wrote, Deleted: u.deleted}
	}
	return u
}

// prepare waits until the cluster takes DaemonSets and asks what the defaults are.
func (u *user) prepare(ctx context.Context) error {
	base := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "base"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{appLabel: "base"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{appLabel: "base"}, Annotations: map[string]string{history.TemplateMark: ""}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: goodImage}}},
			},
		},
	}
	u.author.Mount(&base.Spec.Template)
	if u.plan.Varied {
		tailor.Request(&base.Spec.Template)
	}
	return until(ctx, "the API to take DaemonSets", func(ctx context.Context) (err error) {
		if _, err := u.cluster.api().CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{}); err != nil {
			return err
		}
		if err := u.author.Prepare(ctx); err != nil {
			return err
		}
		if u.plan.Startup {
			if err := startup.Make(ctx, u.cluster.own(), namespace, setName(0), setName(1)); err != nil {
				return err
			}
			if err := startup.Wait(ctx, u.cluster.api(), u.plan.Nodes+startup.Together); err != nil {
				return err
			}
		}
		u.base, err = u.cluster.api().AppsV1().DaemonSets(namespace).Create(ctx, base, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

// do takes one step.
func (u *user) do(ctx context.Context, s plan.Step) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	what, err := u.step(ctx, s)
	// When nobody was there, or somebody else was faster, the step is still to be taken.
	for (errors.Is(err, syscall.ECONNREFUSED) || apierrors.IsConflict(err)) && ctx.Err() == nil {
		sleep(ctx, 20*time.Millisecond)
		what, err = u.step(ctx, s)
	}
	switch {
	case what == "" && err == nil: // there was nothing to do it to
	case err != nil:
		u.journal.note("user: %s %s: %v", s.Op, what, err)
	default:
		u.journal.note("user: %s %s", s.Op, what)
	}
}

func (u *user) step(ctx context.Context, s plan.Step) (string, error) {
	switch s.Op {
	case plan.CreateSet, plan.CreatePoorSet:
		return u.create(ctx, s)
	case plan.EditTemplate, plan.BreakTemplate, plan.CrashTemplate, plan.StallTemplate, plan.EditPlacement, plan.EditStrategy, plan.Rollback:
		return u.edit(ctx, s)
	case plan.DeleteSet:
		return u.deleteSet(ctx, s, metav1.DeletePropagationBackground)
	case plan.OrphanSet:
		return u.deleteSet(ctx, s, metav1.DeletePropagationOrphan)
	case plan.ForegroundSet:
		return u.deleteSet(ctx, s, metav1.DeletePropagationForeground)
	case plan.ReplaceSet:
		return u.replaceSet(ctx, s)
	case plan.TaintNode, plan.UntaintNode, plan.SickNode, plan.WellNode, plan.CordonNode, plan.LabelNode, plan.RemoveNode, plan.AddNode,
		plan.ClassNode:
		return u.node(ctx, s)
	case plan.LeaveTogether:
		return startup.Each(func(i int) (string, error) {
			return u.node(ctx, plan.Step{Op: plan.RemoveNode, Pick: s.Pick + i})
		})
	case plan.ReturnTogether:
		return startup.Each(func(int) (string, error) { return u.node(ctx, plan.Step{Op: plan.AddNode}) })
	}
	if what, is, err := u.tailor.Step(ctx, s); is {
		return what, err
	}
	if policed(s.Op) {
		return u.policed(ctx, s)
	}
	return u.pod(ctx, s)
}

// setName is the name that a number stands for.
func setName(pick int) string { return fmt.Sprintf("set-%d", pick%plan.Sets) }

// mark is the next template's.
func (u *user) mark() string {
	u.templates++
	return fmt.Sprintf("t%d", u.templates)
}

func (u *user) create(ctx context.Context, s plan.Step) (string, error) {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: setName(s.Pick), Namespace: namespace}, Spec: *u.base.Spec.DeepCopy()}
	labels := map[string]string{appLabel: d.Name}
	d.Labels = labels
	d.Spec.Selector.MatchLabels, d.Spec.Template.Labels = labels, labels
	d.Spec.Template.Annotations = map[string]string{history.TemplateMark: u.mark()}
	if s.Op == plan.CreatePoorSet {
		d.Spec.Template.Spec.Containers[0].Image = ground.PoorImage
	}
	strategies.Set(&d.Spec, s.Other)
	created, err := u.cluster.api().AppsV1().DaemonSets(namespace).Create(ctx, d, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return "", nil
	}
	u.wrote("DaemonSet", d, created, err)
	mark := d.Spec.Template.Annotations[history.TemplateMark]
	return fmt.Sprintf("%s, template %s, %s", d.Name, mark, describe.Strategy(d)), err
}

// wrote puts a creation or a change into the journal. What was refused was not done.
func (u *user) wrote(kind string, sent, got metav1.Object, err error) {
	w := history.Write{Kind: kind, Name: sent.GetName(), UID: sent.GetUID(), Wish: wish.Of(sent)}
	switch {
	case err == nil:
		w.Acknowledged, w.UID, w.Revision, w.Wish = true, got.GetUID(), revisionOf(got), wish.Of(got)
	case refused(err):
		return
	}
	u.journal.wrote(w)
}

// deleted does the same for a deletion.
func (u *user) deleted(kind string, o metav1.Object, err error) {
	if refused(err) {
		return
	}
	u.journal.wrote(history.Write{Kind: kind, Name: o.GetName(), UID: o.GetUID(), Delete: true, Acknowledged: err == nil})
}

// refused tells an answer that nothing was done from none, or one that leaves it open.
func refused(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= 400 && status.Status().Code < 500
}

func revisionOf(o metav1.Object) (n int64) {
	_, _ = fmt.Sscan(o.GetResourceVersion(), &n)
	return n
}

// edit changes a DaemonSet.
func (u *user) edit(ctx context.Context, s plan.Step) (string, error) {
	sets, err := u.sets(ctx)
	if err != nil || len(sets) == 0 {
		return "", err
	}
	d := sets[s.Pick%len(sets)].DeepCopy()
	what := d.Name
	switch s.Op {
	case plan.EditTemplate:
		u.setImage(d, []string{goodImage, goodImage, slowImage}[s.Other%3])
		what += ", template " + d.Spec.Template.Annotations[history.TemplateMark]
	case plan.BreakTemplate:
		u.setImage(d, badImage)
		what += ", template " + d.Spec.Template.Annotations[history.TemplateMark]
	case plan.CrashTemplate, plan.StallTemplate:
		u.setImage(d, goodImage)
		d.Spec.Template.Annotations[illness.Annotation] = map[plan.Op]string{plan.CrashTemplate: crash, plan.StallTemplate: "neverReady"}[s.Op]
		what += ", template " + d.Spec.Template.Annotations[history.TemplateMark]
	case plan.EditPlacement:
		d.Spec.Template.Spec.NodeSelector, d.Spec.Template.Spec.Tolerations = nil, nil
		if s.Other%2 == 0 {
			d.Spec.Template.Spec.NodeSelector = map[string]string{poolLabel: "a"}
		}
		if s.Third%2 == 0 {
			d.Spec.Template.Spec.Tolerations = []corev1.Toleration{{Key: offTaint, Operator: corev1.TolerationOpExists}}
		}
		d.Spec.Template.Annotations[history.TemplateMark] = u.mark()
		what += fmt.Sprintf(", template %s, selector %v, %d tolerations", d.Spec.Template.Annotations[history.TemplateMark], d.Spec.Template.Spec.NodeSelector, len(d.Spec.Template.Spec.Tolerations))
	case plan.EditStrategy:
		strategies.Set(&d.Spec, s.Other)
		what += fmt.Sprintf(", %s, ready for %d s", describe.Strategy(d), d.Spec.MinReadySeconds)
	case plan.Rollback:
		template, err := u.earlier(ctx, d, s.Other)
		if err != nil || template == nil {
			return "", err
		}
		d.Spec.Template = *template
		what += ", template " + template.Annotations[history.TemplateMark]
	}
	updated, err := u.cluster.api().AppsV1().DaemonSets(namespace).Update(ctx, d, metav1.UpdateOptions{})
	u.wrote("DaemonSet", d, updated, err)
	return what, err
}

func (u *user) setImage(d *appsv1.DaemonSet, image string) {
	d.Spec.Template.Spec.Containers[0].Image = image
	delete(d.Spec.Template.Annotations, illness.Annotation)
	d.Spec.Template.Annotations[history.TemplateMark] = u.mark()
}

// earlier is the template of one of the DaemonSet's revisions.
func (u *user) earlier(ctx context.Context, d *appsv1.DaemonSet, pick int) (*corev1.PodTemplateSpec, error) {
	list, err := u.cluster.api().AppsV1().ControllerRevisions(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	owned := slices.DeleteFunc(list.Items, func(r appsv1.ControllerRevision) bool { return !metav1.IsControlledBy(&r, d) })
	if len(owned) < 2 {
		return nil, nil
	}
	slices.SortFunc(owned, func(a, b appsv1.ControllerRevision) int { return cmp.Compare(a.Revision, b.Revision) })
	var data struct {
		Spec struct{ Template corev1.PodTemplateSpec }
	}
	if err := json.Unmarshal(owned[pick%(len(owned)-1)].Data.Raw, &data); err != nil {
		return nil, fmt.Errorf("read a revision of %s: %w", d.Name, err)
	}
	return &data.Spec.Template, nil
}

func (u *user) deleteSet(ctx context.Context, s plan.Step, how metav1.DeletionPropagation) (string, error) {
	sets, err := u.sets(ctx)
	if err != nil || len(sets) == 0 {
		return "", err
	}
	d := &sets[s.Pick%len(sets)]
	options := metav1.DeleteOptions{PropagationPolicy: &how, Preconditions: metav1.NewUIDPreconditions(string(d.UID))}
	err = u.cluster.api().AppsV1().DaemonSets(namespace).Delete(ctx, d.Name, options)
	u.deleted("DaemonSet", d, err)
	return d.Name, err
}

// replaceSet is `kubectl replace --force` with a manifest that did not change.
func (u *user) replaceSet(ctx context.Context, s plan.Step) (string, error) {
	sets, err := u.sets(ctx)
	if err != nil || len(sets) == 0 {
		return "", err
	}
	old := &sets[s.Pick%len(sets)]
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: metav1.NewUIDPreconditions(string(old.UID))}
	err = u.cluster.api().AppsV1().DaemonSets(namespace).Delete(ctx, old.Name, options)
	u.deleted("DaemonSet", old, err)
	if err != nil {
		return old.Name, err
	}
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: old.Name, Namespace: namespace, Labels: old.Labels}, Spec: *old.Spec.DeepCopy()}
	created, err := u.cluster.api().AppsV1().DaemonSets(namespace).Create(ctx, d, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return old.Name, nil // a finalizer keeps it
	}
	u.wrote("DaemonSet", d, created, err)
	return fmt.Sprintf("%s, template %s", d.Name, d.Spec.Template.Annotations[history.TemplateMark]), err
}

// sets lists the DaemonSets that are not on their way out, by name.
func (u *user) sets(ctx context.Context) ([]appsv1.DaemonSet, error) {
	list, err := u.cluster.api().AppsV1().DaemonSets(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(d appsv1.DaemonSet) bool { return d.DeletionTimestamp != nil }), nil
}

// pods lists the pods that are not on their way out, by name.
func (u *user) pods(ctx context.Context, which func(*corev1.Pod) bool) ([]corev1.Pod, error) {
	list, err := u.cluster.api().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil || !which(&p) }), nil
}

// pod does something to a pod.
func (u *user) pod(ctx context.Context, s plan.Step) (string, error) {
	if s.Op == plan.MakePod {
		return u.makePod(ctx, s)
	}
	astray := s.Op == plan.MoveLabelBack
	found, err := u.pods(ctx, func(p *corev1.Pod) bool { return strings.HasPrefix(p.Labels[appLabel], "astray-") == astray })
	if err != nil || len(found) == 0 {
		return "", err
	}
	p := &found[s.Other%len(found)]
	api := u.cluster.api().CoreV1().Pods(namespace)
	switch s.Op {
	case plan.MoveLabel:
		return p.Name, u.label(ctx, p, "astray-"+p.Labels[appLabel])
	case plan.MoveLabelBack:
		return p.Name, u.label(ctx, p, strings.TrimPrefix(p.Labels[appLabel], "astray-"))
	case plan.DeletePod:
		return p.Name, u.deletePod(ctx, p, nil)
	case plan.ForceDeletePod:
		return p.Name, u.deletePod(ctx, p, new(int64))
	}
	phase := corev1.PodFailed
	if s.Op == plan.SucceedPod {
		phase = corev1.PodSucceeded
	}
	patch := fmt.Sprintf(`{"metadata":{"uid":%q},"status":{"phase":%q}}`, p.UID, phase)
	_, err = api.Patch(ctx, p.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
	return p.Name, err
}

func (u *user) label(ctx context.Context, p *corev1.Pod, value string) error {
	p = p.DeepCopy()
	p.Labels[appLabel] = value
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"labels":{%q:%q}}}`, p.UID, appLabel, value)
	updated, err := u.cluster.api().CoreV1().Pods(namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	u.wrote("Pod", p, updated, err)
	return err
}

func (u *user) deletePod(ctx context.Context, p *corev1.Pod, grace *int64) error {
	options := metav1.DeleteOptions{GracePeriodSeconds: grace, Preconditions: metav1.NewUIDPreconditions(string(p.UID))}
	err := u.cluster.api().CoreV1().Pods(namespace).Delete(ctx, p.Name, options)
	u.deleted("Pod", p, err)
	return err
}

// makePod makes a pod that a DaemonSet's selector matches, for one node or any.
func (u *user) makePod(ctx context.Context, s plan.Step) (string, error) {
	u.made++
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("by-hand-%d", u.made), Namespace: namespace, Labels: map[string]string{appLabel: setName(s.Pick)}},
		Spec:       *u.base.Spec.Template.Spec.DeepCopy(),
	}
	nodes, err := u.cluster.api().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil || len(nodes.Items) == 0 {
		return "", err
	}
	p.Spec.NodeName = nodes.Items[s.Other%len(nodes.Items)].Name
	created, err := u.cluster.api().CoreV1().Pods(namespace).Create(ctx, p, metav1.CreateOptions{})
	u.wrote("Pod", p, created, err)
	return p.Name + " on " + p.Spec.NodeName, err
}

// node does something to a node.
func (u *user) node(ctx context.Context, s plan.Step) (string, error) {
	if s.Op == plan.AddNode {
		return u.addNode(s), nil
	}
	api := u.cluster.api().CoreV1().Nodes()
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) == 0 {
		return "", err
	}
	n := list.Items[s.Pick%len(list.Items)].DeepCopy()
	what := n.Name
	switch s.Op {
	case plan.RemoveNode:
		if len(list.Items) <= 2 {
			return "", nil
		}
		u.cluster.removeNode(n.Name)
		u.left = append(u.left, n.Name)
		err := api.Delete(ctx, n.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(n.UID))})
		u.deleted("Node", n, err)
		return what, err
	case plan.TaintNode, plan.UntaintNode:
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == offTaint })
		if s.Op == plan.TaintNode {
			effect := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}[s.Other%2]
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: offTaint, Effect: effect})
			what += " " + string(effect)
		}
	case plan.SickNode:
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, illness.Annotation, "notReady")
	case plan.WellNode:
		delete(n.Annotations, illness.Annotation)
	case plan.CordonNode:
		n.Spec.Unschedulable = !n.Spec.Unschedulable
	case plan.ClassNode:
		n.Labels = tailor.Classed(n.Labels, s.Other)
		what += " " + n.Labels[molds.ClassLabel]
	case plan.LabelNode:
		if n.Labels[poolLabel] == "" {
			n.Labels[poolLabel] = "a"
		} else {
			delete(n.Labels, poolLabel)
		}
	}
	updated, err := api.Update(ctx, n, metav1.UpdateOptions{})
	u.wrote("Node", n, updated, err)
	return what, err
}

func (u *user) addNode(s plan.Step) string {
	back := ""
	if len(u.left) > 0 && s.Other%2 == 0 {
		back, u.left = u.left[0], u.left[1:]
	}
	return u.cluster.addNode(back)
}
