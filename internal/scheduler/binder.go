package scheduler

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/fit"
	"github.com/everynode/everynode/internal/scheduler/devices"
)

// Writer is what the scheduler does to the API.
type Writer interface {
	// Bind gives the pod to the node. It fails with NotFound or Conflict if the pod is gone, is another pod of the same
	// name, or has a node; and with Conflict if the node is gone, or is another one of the same name.
	Bind(ctx context.Context, pod *corev1.Pod, node Chosen) error
	// PatchStatus merges the given fields into the status of this very pod. Conditions are merged by type.
	PatchStatus(ctx context.Context, pod *corev1.Pod, status StatusPatch) error
	// Delete removes this very pod, gracefully.
	Delete(ctx context.Context, pod *corev1.Pod) error
	// UpdateClaim and UpdateVolume write the object over that very version.
	UpdateClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error
	UpdateVolume(ctx context.Context, v *corev1.PersistentVolume) error
	// BindClaim writes the finalizers and the status of next over that very version of a claim to devices, and returns
	// what it has become.
	BindClaim(ctx context.Context, was, next *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error)
	// ReadClaim reads a claim as it is now.
	ReadClaim(ctx context.Context, claim *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error)
	// FreeClaim writes the status over that very version of a claim whose only user is this very pod, and fails if that
	// has a node by now.
	FreeClaim(ctx context.Context, pod *corev1.Pod, claim *resourcev1.ResourceClaim) (*resourcev1.ResourceClaim, error)
}

// Chosen is the node that was decided for. Another one of its name, made since, may be closed to the pod.
type Chosen struct {
	Name string
	// UID may be missing; then any node of the name will do.
	UID types.UID
}

// BindingOf is what gives this very pod to this very node.
func BindingOf(pod *corev1.Pod, node Chosen) *corev1.Binding {
	return &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node.Name, UID: node.UID},
	}
}

// StatusPatch is the part of a pod's status that the scheduler writes. Nil fields are left as they are.
type StatusPatch struct {
	Conditions        []corev1.PodCondition `json:"conditions,omitempty"`
	NominatedNodeName *string               `json:"nominatedNodeName,omitempty"`
}

// ApplyTo merges it into a status, as the API server does with such a patch.
func (p *StatusPatch) ApplyTo(status *corev1.PodStatus) {
	for _, c := range p.Conditions {
		i := slices.IndexFunc(status.Conditions, func(old corev1.PodCondition) bool { return old.Type == c.Type })
		if i < 0 {
			status.Conditions = append(status.Conditions, c)
			continue
		}
		old := &status.Conditions[i] // what a patch does not say stays
		c.Reason, c.Message = cmp.Or(c.Reason, old.Reason), cmp.Or(c.Message, old.Message)
		c.ObservedGeneration = cmp.Or(c.ObservedGeneration, old.ObservedGeneration)
		*old = c
	}
	if p.NominatedNodeName != nil {
		status.NominatedNodeName = *p.NominatedNodeName
	}
}

type clientWriter struct{ client kubernetes.Interface }

// NewWriter returns the Writer that goes through a client.
func NewWriter(client kubernetes.Interface) Writer { return clientWriter{client} }

func (w clientWriter) Bind(ctx context.Context, pod *corev1.Pod, node Chosen) error {
	binding := BindingOf(pod, node)
	if err := w.client.CoreV1().Pods(pod.Namespace).Bind(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("bind pod %s/%s to node %s: %w", pod.Namespace, pod.Name, node.Name, err)
	}
	return nil
}

func (w clientWriter) PatchStatus(ctx context.Context, pod *corev1.Pod, status StatusPatch) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		return fmt.Errorf("encode status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	_, err = w.client.CoreV1().Pods(pod.Namespace).Patch(
		ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status",
	)
	if err != nil {
		return fmt.Errorf("patch status of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func (w clientWriter) Delete(ctx context.Context, pod *corev1.Pod) error {
	options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))}
	if err := w.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options); err != nil {
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// binder holds the writes to be done. Bindings go before everything else: a pod waits for them.
type binder struct {
	writer  Writer
	events  *recorder
	inbox   *inbox
	clock   clock.PassiveClock
	metrics *metrics

	mu       sync.Mutex
	ready    *sync.Cond
	bindings []func(context.Context)
	others   []func(context.Context)
	stopped  bool
}

func newBinder(writer Writer, events *recorder, inbox *inbox, clock clock.PassiveClock, metrics *metrics) *binder {
	b := &binder{writer: writer, events: events, inbox: inbox, clock: clock, metrics: metrics}
	b.ready = sync.NewCond(&b.mu)
	return b
}

// work does writes until stop.
func (b *binder) work(ctx context.Context) {
	for {
		write := b.next()
		if write == nil {
			return
		}
		write(ctx)
	}
}

func (b *binder) next() func(context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.stopped && len(b.bindings) == 0 && len(b.others) == 0 {
		b.ready.Wait()
	}
	var write func(context.Context)
	switch {
	case b.stopped:
	case len(b.bindings) > 0:
		write, b.bindings = b.bindings[0], b.bindings[1:]
	default:
		write, b.others = b.others[0], b.others[1:]
	}
	return write
}

func (b *binder) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopped = true
	b.ready.Broadcast()
}

func (b *binder) add(list *[]func(context.Context), write func(context.Context)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*list = append(*list, write)
	b.ready.Signal()
}

// attempt is what is counted of an attempt to schedule a pod.
type attempt struct {
	number        int
	known, begins time.Time
}

// bind writes the claims to devices and the binding of an assumed pod; a failure goes to the inbox.
func (b *binder) bind(pod *fit.Pod, node Chosen, gifts []devices.Gift, a attempt) {
	b.add(&b.bindings, func(ctx context.Context) {
		left, err := b.giveDevices(ctx, gifts)
		if err == nil {
			err = b.writer.Bind(ctx, pod.Object, node)
		}
		now := b.clock.Now()
		if err != nil {
			b.metrics.attempted(resultError, now.Sub(a.begins))
			b.inbox.put(message{kind: kindOutcome, uid: pod.UID, err: err, gifts: left})
			return
		}
		b.metrics.attempted(resultScheduled, now.Sub(a.begins))
		b.metrics.placed(a.number, now.Sub(a.known))
		klog.FromContext(ctx).V(2).Info("Bound pod", "pod", klog.KObj(pod.Object), "node", node.Name)
		b.events.scheduled(pod.Object, node.Name)
	})
}

// report writes the condition PodScheduled=False with reason and message, the nomination unless it is nil, and the
// event that goes with them. What the pod has already is not written.
func (b *binder) report(pod *fit.Pod, reason, text string, nominated *string) {
	b.events.failedScheduling(pod.Object, text)
	var status StatusPatch
	if condition, changed := notScheduled(pod.Object, reason, text, b.events.now()); changed {
		status.Conditions = []corev1.PodCondition{condition}
	}
	if nominated != nil && *nominated != pod.Object.Status.NominatedNodeName {
		status.NominatedNodeName = nominated
	}
	if status.Conditions == nil && status.NominatedNodeName == nil {
		return
	}
	b.add(&b.others, func(ctx context.Context) { b.patch(ctx, pod.Object, status) })
}

func (b *binder) patch(ctx context.Context, pod *corev1.Pod, status StatusPatch) {
	if err := ignoreGone(b.writer.PatchStatus(ctx, pod, status)); err != nil && ctx.Err() == nil {
		// The next attempt to schedule the pod writes it again.
		klog.FromContext(ctx).Error(err, "Could not write why the pod is not scheduled", "pod", klog.KObj(pod))
	}
}

// ignoreGone drops the error of a write to a pod that is gone, or was replaced by one of the same name.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// notScheduled is the condition to write, and whether it says anything new.
func notScheduled(pod *corev1.Pod, reason, text string, now metav1.Time) (corev1.PodCondition, bool) {
	condition := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: text,
		ObservedGeneration: pod.Generation, LastTransitionTime: now,
	}
	for i := range pod.Status.Conditions {
		old := &pod.Status.Conditions[i]
		if old.Type != corev1.PodScheduled {
			continue
		}
		if old.Status == condition.Status {
			condition.LastTransitionTime = old.LastTransitionTime
		}
		return condition, old.Status != condition.Status || old.Reason != reason || old.Message != text
	}
	return condition, true
}
