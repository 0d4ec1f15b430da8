package beside

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/beside/certs"
	"github.com/everynode/everynode/internal/beside/conditions"
	"github.com/everynode/everynode/internal/beside/opening"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/change/history"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
)

const (
	// lookEvery is the time between two looks at everything, lookPause the least between two for events.
	lookEvery = 10 * time.Second
	lookPause = 500 * time.Millisecond
)

// The reasons of our events.
const (
	StoredAsBefore = "StoredAsBefore"
	WrongRevision  = "WrongRevision"
)

// fieldManager is the field manager of what is written here.
const fieldManager = opening.FieldManager

// lead registers the webhook, and takes DaemonSets over and gives them back, until ctx ends.
func (g *Guest) lead(ctx context.Context, objects cache.Cache) error {
	ctx = klog.NewContext(ctx, klog.FromContext(ctx).WithName("beside"))
	g.led = time.Now()
	for _, of := range []client.Object{
		&appsv1.DaemonSet{}, &appsv1.ControllerRevision{}, &v1alpha1.RolloutPolicy{}, &v1alpha1.DaemonSetRollout{},
	} {
		_, err := follow(ctx, objects, of, func(any) { g.nudge() }, func(any) { g.nudge() })
		if err != nil && !meta.IsNoMatchError(err) {
			return err
		}
	}
	_, err := follow(ctx, objects, &corev1.Pod{}, as(func(p *corev1.Pod) {
		g.nudgeIf(g.waiting.set(p))
		g.nudgeIf(g.makers.Set(p, g.cfg.Maker))
	}), as(func(p *corev1.Pod) { g.nudgeIf(g.waiting.gone(p)) }))
	if err != nil {
		return err
	}
	for {
		err := g.turn(ctx, objects)
		if err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).Error(err, "Cannot do all that is due, will try again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookPause):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-g.wake:
		case <-time.After(lookEvery):
		}
	}
}

// turn does what is due. While somebody leaves nothing is.
func (g *Guest) turn(ctx context.Context, objects client.Reader) error {
	if !g.webhook.Ready() {
		g.nudge()
		return nil // the certificate's keeper says why
	}
	held, err := g.certificate(ctx)
	if err != nil { // pods that wait do not wait for the certificate too
		return errors.Join(err, g.passGates(ctx, objects))
	}
	if isLeaving(held, time.Now()) {
		return nil
	}
	return errors.Join(g.register(ctx, held), g.look(ctx, objects), g.passGates(ctx, objects))
}

// register writes the webhook configuration and the net below it, where they are not as they are to be.
func (g *Guest) register(ctx context.Context, held map[string][]byte) error {
	o := g.registered(certs.Trusted(held))
	var err error
	o.Startups, err = g.askAboutNodes(ctx)
	if err != nil {
		return err
	}
	api := g.client.AdmissionregistrationV1()
	hooks := registration.Webhooks(o)
	errs := []error{put(ctx, hooks, api.MutatingWebhookConfigurations(), func(have, want *hookConfig) bool {
		return apiequality.Semantic.DeepEqual(have.Webhooks, want.Webhooks)
	})}
	for _, p := range registration.Net(o) {
		errs = append(errs, put(ctx, p, api.ValidatingAdmissionPolicies(), func(have, want *netPolicy) bool {
			return apiequality.Semantic.DeepEqual(have.Spec, want.Spec)
		}))
	}
	for _, b := range registration.Bindings(o) {
		errs = append(errs, put(ctx, b, api.ValidatingAdmissionPolicyBindings(), func(have, want *netBinding) bool {
			return apiequality.Semantic.DeepEqual(have.Spec, want.Spec)
		}))
	}
	return errors.Join(errs...)
}

type (
	hookConfig = admissionregistration.MutatingWebhookConfiguration
	netPolicy  = admissionregistration.ValidatingAdmissionPolicy
	netBinding = admissionregistration.ValidatingAdmissionPolicyBinding
)

// store is a client of one kind.
type store[T any] interface {
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	Create(ctx context.Context, obj T, o metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, o metav1.UpdateOptions) (T, error)
}

// put has the API hold an object as it is wanted.
func put[T client.Object](ctx context.Context, want T, in store[T], same func(have, want T) bool) error {
	have, err := in.Get(ctx, want.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = in.Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
	case err == nil && !same(have, want):
		want.SetResourceVersion(have.GetResourceVersion())
		want.SetLabels(have.GetLabels()) // others may have set them
		want.SetAnnotations(have.GetAnnotations())
		_, err = in.Update(ctx, want, metav1.UpdateOptions{FieldManager: fieldManager})
	}
	if err != nil {
		return fmt.Errorf("register %T %s: %w", want, want.GetName(), err)
	}
	return nil
}

// seen is all that a look goes by.
type seen struct {
	sets      []appsv1.DaemonSet
	policies  []*v1alpha1.RolloutPolicy
	rollouts  map[types.NamespacedName]*v1alpha1.DaemonSetRollout
	revisions map[types.UID][]*appsv1.ControllerRevision
	copies    map[types.UID][]*appsv1.ControllerRevision
}

// look takes over what a policy selects, gives back what none does any more, and keeps the stable revisions.
func (g *Guest) look(ctx context.Context, objects client.Reader) error {
	caughtUp := g.caughtUp() // before it looks: what was seen earlier may be behind
	s, err := g.see(ctx, objects)
	if err != nil {
		return err
	}
	var errs []error
	for i := range s.sets {
		ds := &s.sets[i]
		if ds.DeletionTimestamp != nil {
			g.makers.Forget(ds.UID)
			continue
		}
		g.tellOther(ctx, ds)
		errs = append(errs, g.keepStable(ctx, s, ds), g.countWrong(ctx, objects, s, ds), g.move(ctx, objects, s, ds),
			g.condition(ctx, objects, s, ds))
	}
	g.forgetWrong(s.sets)
	g.trials.forget(s.sets)
	select {
	case <-g.looked:
	default:
		if caughtUp {
			close(g.looked)
		} else {
			g.nudge()
		}
	}
	return errors.Join(errs...)
}

// caughtUp reports whether the cache is known to have seen what the API held when we began to lead.
func (g *Guest) caughtUp() bool {
	if g.cfg.CaughtUp == nil {
		return true
	}
	select {
	case <-g.cfg.CaughtUp:
		return true
	default:
		return false
	}
}

func (g *Guest) see(ctx context.Context, objects client.Reader) (*seen, error) {
	s := &seen{
		rollouts:  map[types.NamespacedName]*v1alpha1.DaemonSetRollout{},
		revisions: map[types.UID][]*appsv1.ControllerRevision{}, copies: map[types.UID][]*appsv1.ControllerRevision{},
	}
	var sets appsv1.DaemonSetList
	var revisions appsv1.ControllerRevisionList
	var policies v1alpha1.RolloutPolicyList
	var changes v1alpha1.DaemonSetRolloutList
	for _, list := range []client.ObjectList{&sets, &revisions, &policies, &changes} {
		err := objects.List(ctx, list)
		if err != nil {
			return nil, fmt.Errorf("read %T: %w", list, err)
		}
	}
	s.sets = sets.Items
	for i := range policies.Items {
		s.policies = append(s.policies, &policies.Items[i])
	}
	for i := range changes.Items {
		r := &changes.Items[i]
		s.rollouts[types.NamespacedName{Namespace: r.Namespace, Name: r.Name}] = r
	}
	for i := range revisions.Items {
		r := &revisions.Items[i]
		if of := belongings.OwnerOf(r); of != "" {
			s.revisions[of] = append(s.revisions[of], r)
		} else if of = copyOf(r); of != "" {
			s.copies[of] = append(s.copies[of], r)
		}
	}
	return s, nil
}

// move does what is due about how a DaemonSet is stored.
func (g *Guest) move(ctx context.Context, objects client.Reader, s *seen, ds *appsv1.DaemonSet) error {
	stand := admit.Stand{
		Set: ds, Selected: rolloutpolicy.Choose(s.policies, ds.Namespace, ds.Labels) != nil, Rollout: s.rolloutOf(ds),
	}
	if !stand.Selected && !admit.Taken(ds) {
		return nil
	}
	var err error
	if !stand.Selected {
		stand.Newest, stand.Pods, err = g.pods(ctx, objects, s, ds)
		if err != nil {
			return err
		}
	}
	due, why := admit.Due(stand)
	switch due {
	case admit.Take, admit.Return:
		err = g.write(ctx, ds, due)
		if err != nil {
			why = err.Error()
		}
	}
	g.tell(ds, why)
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the next look knows more
	}
	return err
}

// write takes a DaemonSet over, or gives it back, after a trial: where the API server does not ask the webhook nothing
// is stored.
func (g *Guest) write(ctx context.Context, ds *appsv1.DaemonSet, m admit.Move) error {
	patch, err := admit.Annotation(ds, m)
	if err != nil {
		return err
	}
	for _, trial := range [][]string{{metav1.DryRunAll}, nil} {
		waits, err := g.patch(ctx, ds, patch, trial)
		if err != nil {
			return fmt.Errorf("write DaemonSet %s/%s: %w", ds.Namespace, ds.Name, err)
		}
		if waits != (m == admit.Take) {
			return fmt.Errorf("DaemonSet %s/%s: %w", ds.Namespace, ds.Name, errNotAsked)
		}
	}
	klog.FromContext(ctx).Info("Stored a DaemonSet otherwise", "daemonSet", klog.KObj(ds), "takenOver", m == admit.Take)
	return nil
}

// patch patches a DaemonSet, and reports whether the API stores it with OnDelete then. A dry run stores nothing.
func (g *Guest) patch(ctx context.Context, ds *appsv1.DaemonSet, patch []byte, dryRun []string) (waits bool,
	err error) {
	got, err := g.client.AppsV1().DaemonSets(ds.Namespace).Patch(ctx, ds.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager, DryRun: dryRun})
	return err == nil && got.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType, err
}

// tell makes an event of why something has to wait, once.
func (g *Guest) tell(ds *appsv1.DaemonSet, why string) {
	key := ds.Namespace + "/" + ds.Name
	if g.held[key] == why {
		return
	}
	if why == "" {
		delete(g.held, key)
		return
	}
	g.held[key] = why
	g.cfg.Recorder.Event(ds, corev1.EventTypeWarning, StoredAsBefore, why)
}

// condition has the DaemonSet's own conditions say how far its change is.
func (g *Guest) condition(ctx context.Context, objects client.Reader, s *seen, ds *appsv1.DaemonSet) error {
	want := conditions.Of(ds, s.rolloutOf(ds), g.hindered(ctx, objects, ds))
	patch, err := conditions.Patch(ds, want, time.Now())
	if err != nil || patch == nil {
		return err
	}
	_, err = g.client.AppsV1().DaemonSets(ds.Namespace).Patch(ctx, ds.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager}, "status")
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the next look knows more
	}
	if err != nil {
		return fmt.Errorf("write the conditions of DaemonSet %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	return nil
}

// pods are the hash of the DaemonSet's template, "" if it is not known, and how many pods there are of each.
func (g *Guest) pods(ctx context.Context, objects client.Reader, s *seen, ds *appsv1.DaemonSet) (string, map[string]int,
	error) {
	var pods corev1.PodList
	err := objects.List(ctx, &pods, client.InNamespace(ds.Namespace))
	if err != nil {
		return "", nil, fmt.Errorf("read the pods of namespace %s: %w", ds.Namespace, err)
	}
	return census(ds, s.revisions[ds.UID], pods.Items, g.cfg.Normalize)
}

// census returns the hash of the DaemonSet's template, "" if no revision has it yet, and how many of the pods are the
// DaemonSet's, by their revision. The revisions are its own.
func census(ds *appsv1.DaemonSet, revisions []*appsv1.ControllerRevision, pods []corev1.Pod,
	normalize func(*corev1.PodTemplateSpec)) (newest string, of map[string]int, err error) {
	plan, err := history.Compute(history.Input{
		Owner: history.OfDaemonSet(ds), Revisions: revisions, Normalize: normalize,
	})
	if err != nil {
		return "", nil, fmt.Errorf("read the revisions of DaemonSet %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	if plan.Current != nil {
		newest = history.HashOf(plan.Current)
	}
	of = map[string]int{}
	for i := range pods {
		if p := &pods[i]; belongings.OwnerOf(p) == ds.UID {
			of[content.RevisionOf(p.Labels[appsv1.ControllerRevisionHashLabelKey], p.Labels)]++
		}
	}
	return newest, of, nil
}
