package beside

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/beside/admit"
	"github.com/everynode/everynode/internal/beside/gates"
	"github.com/everynode/everynode/internal/change/pinning"
	"github.com/everynode/everynode/internal/change/rolloutpolicy"
	"github.com/everynode/everynode/internal/controller/daemonset/belongings"
	"github.com/everynode/everynode/internal/controller/daemonset/rollouts"
	"github.com/everynode/everynode/internal/node"
)

// parallelDeeds is how many pods are written at one time: a new DaemonSet has one for each node.
const parallelDeeds = 16

// waiting are the pods that ask a registry when they may, or may and have pulled nothing yet.
type waiting struct {
	mu   sync.Mutex
	pods map[types.UID]*corev1.Pod
	sets map[types.UID]int
}

// set takes a pod in, and reports whether it concerns pods that wait.
func (w *waiting) set(p *corev1.Pod) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(p.UID)
	_, through := pinning.LetThrough(p)
	if pinning.IsGated(&p.Spec) || through && !pinning.HasPulled(p) {
		w.pods[p.UID] = p
		w.sets[belongings.OwnerOf(p)]++
		return true
	}
	return w.sets[belongings.OwnerOf(p)] > 0
}

// gone forgets a pod, and reports whether it concerns pods that wait.
func (w *waiting) gone(p *corev1.Pod) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drop(p.UID)
	return w.sets[belongings.OwnerOf(p)] > 0
}

func (w *waiting) drop(uid types.UID) {
	p := w.pods[uid]
	if p == nil {
		return
	}
	delete(w.pods, uid)
	of := belongings.OwnerOf(p)
	w.sets[of]--
	if w.sets[of] == 0 {
		delete(w.sets, of)
	}
}

// of are the DaemonSets whose pods wait, and the pods that are of none.
func (w *waiting) of() (sets map[types.UID]int, alone []*corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.pods {
		if belongings.OwnerOf(p) == "" && pinning.IsGated(&p.Spec) {
			alone = append(alone, p)
		}
	}
	return maps.Clone(w.sets), alone
}

// passGates lets pods through that are to ask a registry, one at a time, and has those made again that need not.
func (g *Guest) passGates(ctx context.Context, objects client.Reader) error {
	sets, alone := g.waiting.of()
	if len(sets) == 0 {
		return nil
	}
	s, err := g.see(ctx, objects)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range alone { // an orphan waits for nobody
		errs = append(errs, open(ctx, g.client, p))
	}
	for i := range s.sets {
		if ds := &s.sets[i]; sets[ds.UID] > 0 && ds.DeletionTimestamp == nil {
			errs = append(errs, g.passGatesOf(ctx, objects, s, ds))
		}
	}
	return errors.Join(errs...)
}

// passGatesOf is that for one DaemonSet. What is due by the cache, which may be behind, is done if it is due by the API
// too.
func (g *Guest) passGatesOf(ctx context.Context, objects client.Reader, s *seen, ds *appsv1.DaemonSet) error {
	var pods corev1.PodList
	err := objects.List(ctx, &pods, client.InNamespace(ds.Namespace), client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("read the pods of namespace %s: %w", ds.Namespace, err)
	}
	stand := g.standing(ctx, objects, s, ds)
	stand.by(s.rolloutOf(ds))
	stand.Pods = podsOf(ds, pods.Items)
	if len(gates.Decide(stand.Stand)) == 0 {
		return nil
	}
	rollout, err := g.own.DaemonSetRollouts(ds.Namespace).Get(ctx, ds.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		rollout, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("read DaemonSetRollout %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	if rollout != nil && rollout.Labels[rollouts.OwnerLabel] != string(ds.UID) {
		rollout = nil
	}
	stand.by(rollout)
	live, err := selectedPods(ctx, g.client, ds)
	if err != nil {
		return err
	}
	stand.Pods = podsOf(ds, live)
	due, nodes := g.again.Bound(stand.Now, ds.UID, gates.Decide(stand.Stand))
	if len(nodes) > 0 {
		slices.Sort(nodes)
		g.cfg.Recorder.Eventf(ds, corev1.EventTypeWarning, gates.OfOthers,
			"Somebody else, such as another webhook, puts its pods behind the scheduling gate %s: on %d nodes, such as %s; "+
				"after %d pods on a node the next one is let through", pinning.Gate, len(nodes), nodes[0], gates.MostAgain)
	}
	return g.carryOut(ctx, objects, ds, due, stand.Pins)
}

// standing is what is decided by.
type standing struct {
	gates.Stand
	// pins tells that the policy has images be pinned.
	taken, pins bool
}

func (g *Guest) standing(ctx context.Context, objects client.Reader, s *seen, ds *appsv1.DaemonSet) *standing {
	policy := rolloutpolicy.Choose(s.policies, ds.Namespace, ds.Labels)
	out := &standing{taken: admit.Taken(ds), pins: policy != nil && policy.Spec.Images == v1alpha1.ImagesPinned}
	out.Now, out.Led = time.Now(), g.led
	revisions := slices.Concat(s.revisions[ds.UID], s.copies[ds.UID])
	read := map[string]*corev1.PodSpec{} // each once, however many pods there are
	out.Template = func(hash string) *corev1.PodSpec {
		spec, known := read[hash]
		if !known {
			spec, _ = admit.SpecOf(revisions, hash) // nil: the pods tell nothing of it then
			read[hash] = spec
		}
		return spec
	}
	out.Faulty = func(name string) bool {
		var n corev1.Node
		err := objects.Get(ctx, client.ObjectKey{Name: name}, &n)
		if err != nil {
			return true
		}
		fault, _, _ := node.Fault(&n)
		return fault != "" || node.Maintenance(&n) != ""
	}
	return out
}

// by adds what the DaemonSet's rollout says; nil if there is none. Images are pinned until it says nothing of them
// either.
func (s *standing) by(rollout *v1alpha1.DaemonSetRollout) {
	s.Status, s.Pins = nil, s.taken && s.pins
	if rollout == nil {
		return
	}
	s.Status = &rollout.Status
	gone := meta.IsStatusConditionTrue(rollout.Status.Conditions, rollouts.PolicyGone)
	s.Pins = s.taken && !gone && (s.pins || rollout.Status.Images != nil)
}

// carryOut does what is due for pods. Where images are pinned a pod is made again only while admission is asked: it
// would ask the registry otherwise, and be of the newest template.
func (g *Guest) carryOut(ctx context.Context, objects client.Reader, ds *appsv1.DaemonSet, due []gates.Move,
	pinned bool) error {
	again := func(m gates.Move) bool { return m.Deed == gates.Remake }
	var hindered error
	if pinned && slices.ContainsFunc(due, again) {
		err := g.mayReplace(ctx, objects, ds.UID, ds.Namespace)
		if err != nil {
			hindered = fmt.Errorf("leave the pods of DaemonSet %s/%s that wait: %w", ds.Namespace, ds.Name, err)
			due = slices.DeleteFunc(due, again)
		}
	}
	errs := make([]error, len(due))
	workqueue.ParallelizeUntil(ctx, parallelDeeds, len(due), func(i int) {
		m, do := due[i], remake
		klog.FromContext(ctx).Info("A pod waits to ask a registry", "pod", klog.KObj(m.Pod), "deed", m.Deed,
			"why", m.Why)
		if m.Deed == gates.Open {
			do = open
		}
		errs[i] = do(ctx, g.client, m.Pod)
	})
	if len(due) > 0 {
		g.nudge()
	}
	return errors.Join(append(errs, hindered)...)
}

// letGo has a pod that waits for nobody any more be made again as it is written; one that nobody makes is let through.
func letGo(ctx context.Context, api kubernetes.Interface, p *corev1.Pod) error {
	if belongings.OwnerOf(p) == "" {
		return open(ctx, api, p)
	}
	return remake(ctx, api, p)
}

// open lets a pod through the gate.
func open(ctx context.Context, api kubernetes.Interface, p *corev1.Pod) error {
	patch, err := gates.Opening(p, time.Now())
	if err != nil {
		return err
	}
	_, err = api.CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("let pod %s/%s through: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// remake deletes a pod that nobody has changed since.
func remake(ctx context.Context, api kubernetes.Interface, p *corev1.Pod) error {
	err := api.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &p.UID, ResourceVersion: &p.ResourceVersion},
	})
	if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete pod %s/%s, which waits: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// selectedPods are the pods that the API says the DaemonSet selects.
func selectedPods(ctx context.Context, api kubernetes.Interface, ds *appsv1.DaemonSet) ([]corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("read the selector of DaemonSet %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	list, err := api.CoreV1().Pods(ds.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return nil, fmt.Errorf("list the pods of DaemonSet %s/%s: %w", ds.Namespace, ds.Name, err)
	}
	return list.Items, nil
}

func podsOf(ds *appsv1.DaemonSet, pods []corev1.Pod) (out []*corev1.Pod) {
	for i := range pods {
		if belongings.OwnerOf(&pods[i]) == ds.UID {
			out = append(out, &pods[i])
		}
	}
	return out
}
