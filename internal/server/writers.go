package server

import (
	"context"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/request"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/record"

	"github.com/everynode/everynode/internal/apiserver"
	"github.com/everynode/everynode/internal/apiserver/insidedoor"
	"github.com/everynode/everynode/internal/controller/daemonset"
	"github.com/everynode/everynode/internal/scheduler"
	"github.com/everynode/everynode/internal/simulator"
)

// The writes that come by the thousand go through the inside door, all others
// through the client: one pod is created, bound, reported and deleted for each
// node; each node gets its network and its taints, and renews a lease.

var (
	pods   = corev1.SchemeGroupVersion.WithResource("pods")
	nodes  = corev1.SchemeGroupVersion.WithResource("nodes")
	events = corev1.SchemeGroupVersion.WithResource("events")
	leases = coordinationv1.SchemeGroupVersion.WithResource("leases")
)

// inside writes objects through the door, with their types.
type inside struct{ door *insidedoor.Door }

func target(resource schema.GroupVersionResource, subresource string, obj metav1.Object) insidedoor.Target {
	return insidedoor.Target{Resource: resource, Subresource: subresource, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// typed gives an answer its type.
func typed[T runtime.Object](obj runtime.Object, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return obj.(T), nil
}

func (i inside) createPod(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	return typed[*corev1.Pod](i.door.Create(ctx, target(pods, "", p), p))
}

func (i inside) bind(ctx context.Context, b *corev1.Binding) error {
	_, err := i.door.Create(ctx, target(pods, "binding", b), b)
	return err
}

func (i inside) updatePodStatus(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	return typed[*corev1.Pod](i.door.Update(ctx, target(pods, "status", p), p))
}

func (i inside) deletePod(ctx context.Context, namespace, name string, options metav1.DeleteOptions) error {
	return i.door.Delete(ctx, insidedoor.Target{Resource: pods, Namespace: namespace, Name: name}, options)
}

func (i inside) createEvent(ctx context.Context, e *corev1.Event) (*corev1.Event, error) {
	return typed[*corev1.Event](i.door.Create(ctx, target(events, "", e), e))
}

// daemonSetWriter is the DaemonSet controller's.
type daemonSetWriter struct {
	daemonset.Writer
	inside
}

func (w daemonSetWriter) CreatePod(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error) {
	return w.createPod(ctx, p)
}

func (w daemonSetWriter) DeletePod(ctx context.Context, namespace, name string, uid types.UID) error {
	return w.deletePod(ctx, namespace, name, *metav1.NewPreconditionDeleteOptions(string(uid)))
}

// schedulerWriter is the scheduler's.
type schedulerWriter struct {
	scheduler.Writer
	inside
}

func (w schedulerWriter) Bind(ctx context.Context, p *corev1.Pod, nodeName string) error {
	return w.bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: nodeName},
	})
}

// schedulerEvents is where the scheduler's events go.
type schedulerEvents struct {
	scheduler.EventSink
	inside
}

func (s schedulerEvents) Create(ctx context.Context, e *corev1.Event) (*corev1.Event, error) {
	return s.createEvent(ctx, e)
}

// controllerEvents is where the controllers' events go.
type controllerEvents struct {
	*typedcorev1.EventSinkImpl
	inside
	// ctx ends with the process: a sink's calls have none of their own.
	ctx context.Context //nolint:containedctx // The interface leaves no other way.
}

var _ record.EventSink = controllerEvents{}

func (s controllerEvents) Create(e *corev1.Event) (*corev1.Event, error) {
	return s.createEvent(s.ctx, e)
}

// collectorClient is the garbage collector's: it deletes the pods of a deleted
// owner one by one.
type collectorClient struct {
	metadata.Interface
	inside
}

func (c collectorClient) Resource(resource schema.GroupVersionResource) metadata.Getter {
	if resource == pods {
		return podsClient{c.Interface.Resource(resource), c.inside}
	}
	return c.Interface.Resource(resource)
}

type podsClient struct {
	metadata.Getter
	inside
}

func (c podsClient) Namespace(namespace string) metadata.ResourceInterface {
	return namespacePods{c.Getter.Namespace(namespace), c.inside, namespace}
}

type namespacePods struct {
	metadata.ResourceInterface
	inside
	namespace string
}

func (c namespacePods) Delete(ctx context.Context, name string, options metav1.DeleteOptions, subresources ...string) error {
	if len(subresources) > 0 {
		return c.ResourceInterface.Delete(ctx, name, options, subresources...)
	}
	return c.deletePod(ctx, c.namespace, name, options)
}

// simulatorWriter is the simulated nodes'.
type simulatorWriter struct {
	simulator.Writer
	inside
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

// writerOf names who has a share of what can be written to the database. The server's own control loops may write as much
// as there is to do.
func writerOf(ctx context.Context) string {
	writer, ok := request.UserFrom(ctx)
	if !ok || apiserver.InProcess(ctx) || insidedoor.Inside(ctx) {
		return ""
	}
	return writer.GetName()
}
