// Package writers has control loops write through the inside door what they write by the thousand: no socket, no TLS
// and no decoding, but the same admission, rights and audit as for everybody.
package writers

import (
	"context"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"

	"github.com/everynode/everynode/internal/apiserver/insidedoor"
	"github.com/everynode/everynode/internal/controller/daemonset/executor"
	"github.com/everynode/everynode/internal/controller/nodeipam"
	"github.com/everynode/everynode/internal/controller/nodelifecycle"
	"github.com/everynode/everynode/internal/controller/nodestartup"
	"github.com/everynode/everynode/internal/scheduler"
	"github.com/everynode/everynode/internal/simulator"
)

// The writes that come by the thousand go through the inside door, all others
// through the client: one pod is created, bound, reported and deleted for each
// node, and its DaemonSet counts them all the while; each node gets its network
// and its taints, and renews a lease.

var (
	pods   = corev1.SchemeGroupVersion.WithResource("pods")
	nodes  = corev1.SchemeGroupVersion.WithResource("nodes")
	events = corev1.SchemeGroupVersion.WithResource("events")
	leases = coordinationv1.SchemeGroupVersion.WithResource("leases")
	sets   = appsv1.SchemeGroupVersion.WithResource("daemonsets")
)

// Inside writes objects through the door, with their types.
type Inside struct{ door *insidedoor.Door }

// Through returns the writers of who uses a door.
func Through(door *insidedoor.Door) Inside { return Inside{door} }

// DaemonSets is the DaemonSet controller's writer; what seldom happens goes through next.
func (i Inside) DaemonSets(next executor.Writer) executor.Writer { return daemonSetWriter{next, i} }

// Scheduler is the scheduler's writer; what seldom happens goes through next.
func (i Inside) Scheduler(next scheduler.Writer) scheduler.Writer { return schedulerWriter{next, i} }

// SchedulerEvents is where the scheduler's events go; what is not new goes to next.
func (i Inside) SchedulerEvents(next scheduler.EventSink) scheduler.EventSink {
	return schedulerEvents{next, i}
}

// ControllerEvents is where the controllers' events go until ctx ends; what is not new goes to next.
func (i Inside) ControllerEvents(ctx context.Context, next *typedcorev1.EventSinkImpl) record.EventSink {
	return controllerEvents{next, i, ctx}
}

// Collector is the garbage collector's client: pods it deletes through the door, all else through next.
func (i Inside) Collector(next metadata.Interface) metadata.Interface {
	return collectorClient{next, i}
}

// Simulator is the simulated nodes' writer; what seldom happens goes through next.
func (i Inside) Simulator(next simulator.Writer) simulator.Writer { return simulatorWriter{next, i} }

// PodNetworks gives nodes their pod networks.
func (i Inside) PodNetworks() nodeipam.Writer { return networkWriter{i} }

// NodeLifecycle says how nodes are; what seldom happens goes through next.
func (i Inside) NodeLifecycle(next nodelifecycle.Writer) nodelifecycle.Writer {
	return lifecycleWriter{next, i}
}

// Gates opens nodes that start.
func (i Inside) Gates() nodestartup.GateWriter { return gateWriter{i} }

func target(resource schema.GroupVersionResource, subresource string, obj metav1.Object) insidedoor.Target {
	return insidedoor.Target{Resource: resource, Subresource: subresource, Namespace: obj.GetNamespace(),
		Name: obj.GetName()}
}

// typed gives an answer its type.
func typed[T runtime.Object](obj runtime.Object, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return obj.(T), nil
}

func (i Inside) createPod(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	return typed[*corev1.Pod](i.door.Create(ctx, target(pods, "", p), p))
}

func (i Inside) bind(ctx context.Context, b *corev1.Binding) error {
	_, err := i.door.Create(ctx, target(pods, "binding", b), b)
	return err
}

// AdmittedBinding is a binding after authorization and admission. Nothing is written.
func (i Inside) AdmittedBinding(ctx context.Context, b *corev1.Binding) (*corev1.Binding, error) {
	return typed[*corev1.Binding](i.door.Admitted(ctx, target(pods, "binding", b), b))
}

func (i Inside) updatePodStatus(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	return typed[*corev1.Pod](i.door.Update(ctx, target(pods, "status", p), p))
}

func (i Inside) deletePod(ctx context.Context, namespace, name string, options metav1.DeleteOptions) error {
	return i.door.Delete(ctx, insidedoor.Target{Resource: pods, Namespace: namespace, Name: name}, options)
}

// CreateEvent stores an event.
func (i Inside) CreateEvent(ctx context.Context, e *corev1.Event) (*corev1.Event, error) {
	return typed[*corev1.Event](i.door.Create(ctx, target(events, "", e), e))
}

// daemonSetWriter is the DaemonSet controller's.
type daemonSetWriter struct {
	executor.Writer
	Inside
}

func (w daemonSetWriter) CreatePod(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	return w.createPod(ctx, p)
}

func (w daemonSetWriter) DeletePod(ctx context.Context, namespace, name string, uid types.UID) error {
	return w.deletePod(ctx, namespace, name, *metav1.NewPreconditionDeleteOptions(string(uid)))
}

func (w daemonSetWriter) UpdateDaemonSetStatus(ctx context.Context, ds *appsv1.DaemonSet) (*appsv1.DaemonSet, error) {
	return typed[*appsv1.DaemonSet](w.door.Update(ctx, target(sets, "status", ds), ds))
}

// schedulerWriter is the scheduler's.
type schedulerWriter struct {
	scheduler.Writer
	Inside
}

func (w schedulerWriter) Bind(ctx context.Context, p *corev1.Pod, node scheduler.Chosen) error {
	return w.bind(ctx, scheduler.BindingOf(p, node))
}

// PatchStatus implements scheduler.Writer.
func (w schedulerWriter) PatchStatus(ctx context.Context, p *corev1.Pod, status scheduler.StatusPatch) error {
	_, err := w.door.Change(ctx, target(pods, "status", p), func(obj runtime.Object) error {
		now := obj.(*corev1.Pod)
		if now.UID != p.UID {
			return apierrors.NewConflict(pods.GroupResource(), p.Name, errors.New("it is another pod of that name"))
		}
		status.ApplyTo(&now.Status)
		return nil
	})
	return err
}

// schedulerEvents is where the scheduler's events go.
type schedulerEvents struct {
	scheduler.EventSink
	Inside
}

func (s schedulerEvents) Create(ctx context.Context, e *corev1.Event) (*corev1.Event, error) {
	return s.CreateEvent(ctx, e)
}

// controllerEvents is where the controllers' events go.
type controllerEvents struct {
	*typedcorev1.EventSinkImpl
	Inside
	// ctx ends with the process: a sink's calls have none of their own.
	ctx context.Context //nolint:containedctx // The interface leaves no other way.
}

var _ record.EventSink = controllerEvents{}

func (s controllerEvents) Create(e *corev1.Event) (*corev1.Event, error) {
	return s.CreateEvent(s.ctx, e)
}

// collectorClient is the garbage collector's: it deletes the pods of a deleted
// owner one by one.
type collectorClient struct {
	metadata.Interface
	Inside
}

func (c collectorClient) Resource(resource schema.GroupVersionResource) metadata.Getter {
	if resource == pods {
		return podsClient{c.Interface.Resource(resource), c.Inside}
	}
	return c.Interface.Resource(resource)
}

type podsClient struct {
	metadata.Getter
	Inside
}

func (c podsClient) Namespace(namespace string) metadata.ResourceInterface {
	return namespacePods{c.Getter.Namespace(namespace), c.Inside, namespace}
}

type namespacePods struct {
	metadata.ResourceInterface
	Inside
	namespace string
}

func (c namespacePods) Delete(ctx context.Context, name string, options metav1.DeleteOptions,
	subresources ...string) error {
	if len(subresources) > 0 {
		return c.ResourceInterface.Delete(ctx, name, options, subresources...)
	}
	return c.deletePod(ctx, c.namespace, name, options)
}

// simulatorWriter is the simulated nodes'.
type simulatorWriter struct {
	simulator.Writer
	Inside
}

func (w simulatorWriter) CreateNode(ctx context.Context, n *corev1.Node) (*corev1.Node, error) {
	return typed[*corev1.Node](w.door.Create(ctx, target(nodes, "", n), n))
}

func (w simulatorWriter) UpdateNodeStatus(ctx context.Context, n *corev1.Node) (*corev1.Node, error) {
	return typed[*corev1.Node](w.door.Update(ctx, target(nodes, "status", n), n))
}

func (w simulatorWriter) CreateLease(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return typed[*coordinationv1.Lease](w.door.Create(ctx, target(leases, "", l), l))
}

func (w simulatorWriter) UpdateLease(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	return typed[*coordinationv1.Lease](w.door.Update(ctx, target(leases, "", l), l))
}

func (w simulatorWriter) UpdatePodStatus(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	return w.updatePodStatus(ctx, p)
}

func (w simulatorWriter) DeletePod(ctx context.Context, p *corev1.Pod) error {
	options := metav1.NewPreconditionDeleteOptions(string(p.UID))
	options.GracePeriodSeconds = new(int64)
	return w.deletePod(ctx, p.Namespace, p.Name, *options)
}
