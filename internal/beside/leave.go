package beside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/beside/conditions"
	"github.com/everynode/everynode/internal/beside/registration"
	"github.com/everynode/everynode/internal/change/fetch/fetchpod"
	"github.com/everynode/everynode/internal/change/pinning"
	"github.com/everynode/everynode/internal/change/variant"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
)

const (
	// leaving is the key of the Secret under which stands since when somebody leaves.
	leaving = "leaving"
	// leaveFor is how long a controller that still runs takes nothing over then.
	leaveFor = 10 * time.Minute
	// heedWithin is how long an API server may go on asking a webhook that is not registered any more.
	heedWithin = 30 * time.Second
)

// Leaver gives every DaemonSet back as its author wrote it.
type Leaver struct {
	Options
	API *rest.Config
	// Keep are DaemonSets, as NAMESPACE/NAME, that stay OnDelete; Roll those whose pods may all be replaced at once.
	Keep, Roll []string
	// Normalize fills a pod template's defaults in.
	Normalize func(*corev1.PodTemplateSpec)
	Out       io.Writer

	client kubernetes.Interface
}

// errRefused says that nothing was given back.
var errRefused = errors.New("nothing was given back, and nothing changed")

// Leave gives back every DaemonSet, or none: it refuses while one has pods of another revision and nobody chose what
// becomes of it. kube-controller-manager would replace all of them at once.
func (l *Leaver) Leave(ctx context.Context) error {
	var err error
	l.client, err = kubernetes.NewForConfig(l.API)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	return l.leave(ctx)
}

func (l *Leaver) leave(ctx context.Context) error {
	back, stays, err := l.decide(ctx)
	if err != nil {
		return err
	}
	err = l.unpolice(ctx)
	if err != nil {
		return err
	}
	err = l.mark(ctx)
	if err != nil {
		return err
	}
	err = l.unregister(ctx)
	if err != nil {
		return err
	}
	for i := range back {
		err = l.giveBack(ctx, &back[i])
		if err != nil {
			return err
		}
	}
	// A controller that had looked before the mark was there may have registered it since.
	err = l.unregister(ctx)
	if err != nil {
		return err
	}
	err = l.endFetches(ctx)
	if err != nil {
		return err
	}
	err = l.openGates(ctx)
	if err != nil {
		return err
	}
	err = l.openNodes(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(l.Out, "%d DaemonSets are given back, and %d stay OnDelete; no webhook of Everynode is left.\n", len(back),
		stays)
	fmt.Fprintf(l.Out, "Stop the controller within %s: after that it takes over again what policies select.\n", leaveFor)
	return l.takeNotes(ctx) // last: of many pods that takes minutes
}

// each does something with each of so many objects, several at a time. Meanwhile controllers that still run go on
// taking nothing over.
func (l *Leaver) each(ctx context.Context, many int, done string, do func(ctx context.Context, i int) error) error {
	return crew{l.Out, l.mark}.each(ctx, many, done, do)
}

// endFetches deletes the pods that fetch images for changes that nobody leads any more.
func (l *Leaver) endFetches(ctx context.Context) error {
	list, err := l.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: fetchpod.Label})
	if err != nil {
		return fmt.Errorf("list the pods that fetch images: %w", err)
	}
	return l.each(ctx, len(list.Items), "pods that fetch images are deleted", func(ctx context.Context, i int) error {
		p := &list.Items[i]
		if !fetchpod.Is(p) {
			return nil
		}
		err := l.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, *metav1.NewPreconditionDeleteOptions(string(p.UID)))
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete pod %s/%s, which fetches images: %w", p.Namespace, p.Name, err)
		}
		return nil
	})
}

// notes are the annotations by which a change remembers on pods what came of their images. Nothing reads them later.
var notes = []string{fetchpod.NoteName, pinning.Annotation}

// takeNotes takes them off the pods that stay. An account that may not do so leaves them.
func (l *Leaver) takeNotes(ctx context.Context) error {
	list, err := l.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the pods with notes of changes: %w", err)
	}
	err = l.each(ctx, len(list.Items), "pods are without notes", func(ctx context.Context, i int) error {
		return l.takeNotesOff(ctx, &list.Items[i])
	})
	if apierrors.IsForbidden(err) {
		fmt.Fprintf(l.Out, "Annotations %s stay on pods until these are next made, and mean nothing: %v\n",
			strings.Join(notes, " and "), err)
		return nil
	}
	return err
}

func (l *Leaver) takeNotesOff(ctx context.Context, p *corev1.Pod) error {
	none := map[string]any{}
	for _, name := range notes {
		if _, is := p.Annotations[name]; is {
			none[name] = nil
		}
	}
	if len(none) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID, "annotations": none}})
	if err != nil {
		return fmt.Errorf("write the patch of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	_, err = l.client.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("take notes of a change off pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// openGates has no pod wait for digests any more: nobody would let it through. For a moment API servers may ask the
// webhook, and make another one: it is looked until there is none.
func (l *Leaver) openGates(ctx context.Context) error {
	written, err := l.writtenGates(ctx)
	if err != nil {
		return err
	}
	for until := (time.Time{}); ; {
		list, err := l.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list the pods that wait for digests of images: %w", err)
		}
		var wait []*corev1.Pod
		for i := range list.Items {
			p := &list.Items[i]
			if pinning.IsGated(&p.Spec) && p.DeletionTimestamp == nil && !written[belongings.OwnerOf(p)] {
				wait = append(wait, p)
			}
		}
		err = l.each(ctx, len(wait), "pods wait for digests no more", func(ctx context.Context, i int) error {
			return letGo(ctx, l.client, wait[i])
		})
		if len(wait) == 0 || err != nil {
			return err
		}
		fmt.Fprintf(l.Out, "%d pods waited for digests of their images, and are made again as they are written.\n",
			len(wait))
		if until.IsZero() {
			until = time.Now().Add(heedWithin) // of many pods it takes longer
		}
		if time.Now().After(until) {
			return errors.New("pods go on being made that wait for digests of their images: does a controller still run?")
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for pods to be made again: %w", ctx.Err())
		case <-time.After(time.Second):
		}
	}
}

// writtenGates are the DaemonSets whose authors wrote the gate into the template: their pods would have it again.
func (l *Leaver) writtenGates(ctx context.Context) (map[types.UID]bool, error) {
	sets, err := l.client.AppsV1().DaemonSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list DaemonSets, for pods that wait for digests of images: %w", err)
	}
	out := map[types.UID]bool{}
	for i := range sets.Items {
		out[sets.Items[i].UID] = pinning.IsGated(&sets.Items[i].Spec.Template.Spec)
	}
	return out, nil
}

// decide says what becomes of each DaemonSet that is taken over.
func (l *Leaver) decide(ctx context.Context) (back []appsv1.DaemonSet, stays int, err error) {
	sets, err := l.client.AppsV1().DaemonSets("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, 0, fmt.Errorf("list DaemonSets: %w", err)
	}
	refused := false
	for i := range sets.Items {
		ds := &sets.Items[i]
		if !admit.Taken(ds) {
			continue
		}
		leaving, err := l.leaving(ctx, ds)
		if err != nil {
			return nil, 0, err
		}
		parting, says := admit.Leave(*leaving)
		fmt.Fprintln(l.Out, says)
		switch parting {
		case admit.GivenBack:
			back = append(back, *ds)
		case admit.StaysOnDelete:
			stays++
		case admit.Refused:
			refused = true
		}
	}
	if refused {
		return nil, 0, errRefused
	}
	return back, stays, nil
}

// leaving is what a DaemonSet's parting follows from.
func (l *Leaver) leaving(ctx context.Context, ds *appsv1.DaemonSet) (*admit.Leaving, error) {
	out := &admit.Leaving{Name: ds.Namespace + "/" + ds.Name}
	_, lost := admit.GivingBack(ds)
	if lost != nil { // it is known before anything of the others has changed
		out.Lost = lost.Error()
	}
	switch {
	case slices.Contains(l.Keep, out.Name):
		out.Choice = admit.KeepOnDelete
	case slices.Contains(l.Roll, out.Name):
		out.Choice = admit.LetItRoll
		may, err := l.approves(ctx, ds)
		if err != nil {
			return nil, err
		}
		out.Approves = may
	}
	revisions, err := l.client.AppsV1().ControllerRevisions(ds.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list the revisions of namespace %s: %w", ds.Namespace, err)
	}
	var own []*appsv1.ControllerRevision
	for i := range revisions.Items {
		if belongings.OwnerOf(&revisions.Items[i]) == ds.UID {
			own = append(own, &revisions.Items[i])
		}
	}
	pods, err := selectedPods(ctx, l.client, ds)
	if err != nil {
		return nil, err
	}
	out.Newest, out.Pods, err = census(ds, own, pods, l.Normalize)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		p := &pods[i]
		if belongings.OwnerOf(p) == ds.UID && variant.MarkOf(&p.ObjectMeta).Variant != "" {
			out.Varied++
		}
	}
	if out.Newest == "" {
		return nil, fmt.Errorf("the revision of the template of DaemonSet %s is not there yet; try again", out.Name)
	}
	return out, nil
}

// approves reports whether whoever asks may approve rollouts of the DaemonSet's namespace.
func (l *Leaver) approves(ctx context.Context, ds *appsv1.DaemonSet) (bool, error) {
	review, err := l.client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Group: "everynode.io", Resource: "daemonsetrollouts", Verb: "update", Namespace: ds.Namespace, Name: ds.Name,
			}},
		}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask the API who may approve: %w", err)
	}
	return review.Status.Allowed, nil
}

// mark has a controller that still runs take nothing over for a while.
func (l *Leaver) mark(ctx context.Context) error {
	now := time.Now().UTC().Format(time.RFC3339)
	raw, err := json.Marshal(map[string]any{"stringData": map[string]string{leaving: now}})
	if err != nil {
		return fmt.Errorf("write the mark: %w", err)
	}
	_, err = l.client.CoreV1().Secrets(l.Namespace).Patch(ctx, l.Secret, types.MergePatchType, raw,
		metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("mark Secret %s/%s: %w", l.Namespace, l.Secret, err)
	}
	return nil
}

// isLeaving reports whether somebody leaves, by what the Secret holds.
func isLeaving(held map[string][]byte, now time.Time) bool {
	since, err := time.Parse(time.RFC3339, string(held[leaving]))
	return err == nil && now.Before(since.Add(leaveFor))
}

// unregister takes the webhook and the net below it away.
func (l *Leaver) unregister(ctx context.Context) error {
	api := l.client.AdmissionregistrationV1()
	errs := []error{api.MutatingWebhookConfigurations().Delete(ctx, registration.Name, metav1.DeleteOptions{})}
	for _, b := range registration.Bindings(registration.Options{}) {
		errs = append(errs, api.ValidatingAdmissionPolicyBindings().Delete(ctx, b.Name, metav1.DeleteOptions{}))
	}
	for _, p := range registration.Net(registration.Options{}) {
		errs = append(errs, api.ValidatingAdmissionPolicies().Delete(ctx, p.Name, metav1.DeleteOptions{}))
	}
	for _, err := range errs {
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("take the webhook away: %w", err)
		}
	}
	return nil
}

// giveBack stores a DaemonSet as its author wrote it, if it is still what was decided about. For a moment API servers
// may ask the webhook, or hold to the net, or a controller registers it once more: it is tried until none does.
func (l *Leaver) giveBack(ctx context.Context, decided *appsv1.DaemonSet) error {
	until := time.Now().Add(heedWithin)
	for {
		done, err := l.tryGiveBack(ctx, decided)
		if done && err == nil || apierrors.IsNotFound(err) {
			return nil
		}
		if done || errors.Is(err, errChanged) || time.Now().After(until) {
			return fmt.Errorf("give DaemonSet %s/%s back: %w", decided.Namespace, decided.Name, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("give DaemonSet %s/%s back: %w", decided.Namespace, decided.Name, ctx.Err())
		case <-time.After(time.Second):
		}
		err = l.unregister(ctx)
		if err != nil {
			return err
		}
	}
}

// errChanged says that a DaemonSet is not any more what was decided about.
var errChanged = errors.New("somebody has changed it since its pods were counted; run this again")

// tryGiveBack reports whether the DaemonSet is stored as its author wrote it.
func (l *Leaver) tryGiveBack(ctx context.Context, decided *appsv1.DaemonSet) (bool, error) {
	sets := l.client.AppsV1().DaemonSets(decided.Namespace)
	ds, err := sets.Get(ctx, decided.Name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	if ds.UID != decided.UID || ds.Generation != decided.Generation || !admit.Taken(ds) {
		return false, errChanged
	}
	patch, err := admit.GivingBack(ds)
	if err != nil {
		return false, err
	}
	err = l.forget(ctx, ds)
	if err != nil {
		return false, err
	}
	got, err := sets.Patch(ctx, ds.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return false, err
	}
	if admit.Taken(got) || got.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
		return false, errors.New("it is still stored with OnDelete; does something else write it?")
	}
	return true, l.disown(ctx, got)
}

// forget takes the annotation off the revisions, to which kube-controller-manager copied it.
func (l *Leaver) forget(ctx context.Context, ds *appsv1.DaemonSet) error {
	api := l.client.AppsV1().ControllerRevisions(ds.Namespace)
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the revisions of namespace %s: %w", ds.Namespace, err)
	}
	for i := range list.Items {
		r := &list.Items[i]
		_, copied := r.Annotations[admit.UpdateStrategy]
		if !copied || belongings.OwnerOf(r) != ds.UID {
			continue
		}
		_, err = api.Patch(ctx, r.Name, types.MergePatchType, admit.WithoutStrategy(),
			metav1.PatchOptions{FieldManager: fieldManager})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("take the annotation off the revision %s/%s: %w", r.Namespace, r.Name, err)
		}
	}
	return nil
}

// disown has nobody but the author own the update strategy: who applies it on the server would meet a conflict. The
// conditions that say how far a change is go with it.
func (l *Leaver) disown(ctx context.Context, given *appsv1.DaemonSet) error {
	sets := l.client.AppsV1().DaemonSets(given.Namespace)
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		ds, err := sets.Get(ctx, given.Name, metav1.GetOptions{}) // its status may have been written since
		if err != nil || ds.UID != given.UID {
			return err
		}
		patch, err := conditions.Patch(ds, nil, time.Now())
		if err == nil && patch != nil {
			ds, err = sets.Patch(ctx, ds.Name, types.StrategicMergePatchType, patch,
				metav1.PatchOptions{FieldManager: fieldManager}, "status")
		}
		if err != nil {
			return err
		}
		fields := slices.DeleteFunc(ds.ManagedFields, func(m metav1.ManagedFieldsEntry) bool {
			return strings.HasPrefix(m.Manager, fieldManager)
		})
		raw, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"resourceVersion": ds.ResourceVersion, "managedFields": fields,
		}})
		if err != nil {
			return err
		}
		_, err = sets.Patch(ctx, ds.Name, types.MergePatchType, raw, metav1.PatchOptions{FieldManager: fieldManager})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("give up fields of DaemonSet %s/%s: %w", given.Namespace, given.Name, err)
	}
	return nil
}
