package executor

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	everynode "github.com/everynode/everynode/api/client"
	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/controller/daemonset/variants/storing"
	"github.com/everynode/everynode/internal/loop/podwriter"
)

// Writer is everything this controller does to the API, and the few reads that
// must not come from a cache. Errors are those of the API (apierrors). Objects
// passed in may share memory with others and must not be changed.
type Writer interface {
	CreatePod(ctx context.Context, p *corev1.Pod) (*corev1.Pod, error)
	GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error)
	// DeletePod deletes that pod and no other of its name.
	DeletePod(ctx context.Context, namespace, name string, uid types.UID) error
	// PatchPod sends a strategic merge patch.
	PatchPod(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error)
	// ResizePod sends one to pods/resize.
	ResizePod(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error)

	GetDaemonSet(ctx context.Context, namespace, name string) (*appsv1.DaemonSet, error)
	UpdateDaemonSetStatus(ctx context.Context, ds *appsv1.DaemonSet) (*appsv1.DaemonSet, error)

	CreateRevision(ctx context.Context, r *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error)
	GetRevision(ctx context.Context, namespace, name string) (*appsv1.ControllerRevision, error)
	UpdateRevision(ctx context.Context, r *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error)
	// PatchRevision sends a strategic merge patch.
	PatchRevision(ctx context.Context, namespace, name string, patch []byte) (*appsv1.ControllerRevision, error)
	// DeleteRevision deletes that version and no later one.
	DeleteRevision(ctx context.Context, r *appsv1.ControllerRevision) error
}

// RolloutWriter is what this controller does to Everynode's own kinds.
type RolloutWriter interface {
	GetRollout(ctx context.Context, namespace, name string) (*v1alpha1.DaemonSetRollout, error)
	CreateRollout(ctx context.Context, r *v1alpha1.DaemonSetRollout) (*v1alpha1.DaemonSetRollout, error)
	UpdateRollout(ctx context.Context, r *v1alpha1.DaemonSetRollout) (*v1alpha1.DaemonSetRollout, error)
	UpdateRolloutStatus(ctx context.Context, r *v1alpha1.DaemonSetRollout) (*v1alpha1.DaemonSetRollout, error)
	// DeleteRollout deletes that object and no other of its name.
	DeleteRollout(ctx context.Context, r *v1alpha1.DaemonSetRollout) error
	UpdatePolicyStatus(ctx context.Context, p *v1alpha1.RolloutPolicy) (*v1alpha1.RolloutPolicy, error)
}

// clientWriter writes through an ordinary API client.
type clientWriter struct{ podwriter.Writer }

// NewWriter returns a Writer over an API client, to any Kubernetes API. The
// client's rate limit is the controller's.
func NewWriter(client kubernetes.Interface) Writer {
	return clientWriter{podwriter.Writer{Client: client}}
}

func (w clientWriter) GetPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return w.Client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (w clientWriter) ResizePod(ctx context.Context, namespace, name string, patch []byte) (*corev1.Pod, error) {
	return w.Client.CoreV1().Pods(namespace).Patch(
		ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "resize",
	)
}

func (w clientWriter) GetDaemonSet(ctx context.Context, namespace, name string) (*appsv1.DaemonSet, error) {
	return w.Client.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (w clientWriter) UpdateDaemonSetStatus(ctx context.Context, ds *appsv1.DaemonSet) (*appsv1.DaemonSet, error) {
	return w.Client.AppsV1().DaemonSets(ds.Namespace).UpdateStatus(ctx, ds, metav1.UpdateOptions{})
}

func (w clientWriter) CreateRevision(
	ctx context.Context, r *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error,
) {
	return w.Client.AppsV1().ControllerRevisions(r.Namespace).Create(ctx, r, metav1.CreateOptions{})
}

func (w clientWriter) GetRevision(ctx context.Context, namespace, name string) (*appsv1.ControllerRevision, error) {
	return w.Client.AppsV1().ControllerRevisions(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (w clientWriter) UpdateRevision(
	ctx context.Context, r *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error,
) {
	return w.Client.AppsV1().ControllerRevisions(r.Namespace).Update(ctx, r, metav1.UpdateOptions{})
}

func (w clientWriter) PatchRevision(
	ctx context.Context, namespace, name string, patch []byte) (*appsv1.ControllerRevision, error,
) {
	return w.Client.AppsV1().ControllerRevisions(namespace).Patch(
		ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
	)
}

func (w clientWriter) DeleteRevision(ctx context.Context, r *appsv1.ControllerRevision) error {
	options := onlyThat(r.UID)
	options.Preconditions.ResourceVersion = &r.ResourceVersion
	return w.Client.AppsV1().ControllerRevisions(r.Namespace).Delete(ctx, r.Name, options)
}

// rolloutWriter writes Everynode's own kinds through an ordinary API client.
type rolloutWriter struct{ client *everynode.Client }

// NewRolloutWriter returns a RolloutWriter over an API client.
func NewRolloutWriter(client *everynode.Client) RolloutWriter { return rolloutWriter{client} }

func (w rolloutWriter) GetRollout(ctx context.Context, namespace, name string) (*v1alpha1.DaemonSetRollout, error) {
	return w.client.DaemonSetRollouts(namespace).Get(ctx, name, metav1.GetOptions{})
}

func (w rolloutWriter) CreateRollout(
	ctx context.Context, r *v1alpha1.DaemonSetRollout) (*v1alpha1.DaemonSetRollout, error,
) {
	return w.client.DaemonSetRollouts(r.Namespace).Create(ctx, r, metav1.CreateOptions{})
}

func (w rolloutWriter) UpdateRollout(
	ctx context.Context, r *v1alpha1.DaemonSetRollout) (*v1alpha1.DaemonSetRollout, error,
) {
	return w.client.DaemonSetRollouts(r.Namespace).Update(ctx, r, metav1.UpdateOptions{})
}

func (w rolloutWriter) UpdateRolloutStatus(
	ctx context.Context, r *v1alpha1.DaemonSetRollout) (*v1alpha1.DaemonSetRollout, error,
) {
	return w.client.DaemonSetRollouts(r.Namespace).UpdateStatus(ctx, r, metav1.UpdateOptions{})
}

func (w rolloutWriter) DeleteRollout(ctx context.Context, r *v1alpha1.DaemonSetRollout) error {
	return w.client.DaemonSetRollouts(r.Namespace).Delete(ctx, r.Name, onlyThat(r.UID))
}

func (w rolloutWriter) UpdatePolicyStatus(
	ctx context.Context, p *v1alpha1.RolloutPolicy) (*v1alpha1.RolloutPolicy, error,
) {
	return w.client.RolloutPolicies(p.Namespace).UpdateStatus(ctx, p, metav1.UpdateOptions{})
}

// NewVariantWriter returns a writer of variants' status over an API client.
func NewVariantWriter(client *everynode.Client) storing.StatusWriter { return rolloutWriter{client} }

func (w rolloutWriter) UpdateVariantStatus(
	ctx context.Context, v *v1alpha1.DaemonSetVariant,
) (*v1alpha1.DaemonSetVariant, error) {
	return w.client.DaemonSetVariants(v.Namespace).UpdateStatus(ctx, v, metav1.UpdateOptions{})
}

func onlyThat(uid types.UID) metav1.DeleteOptions {
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
}
