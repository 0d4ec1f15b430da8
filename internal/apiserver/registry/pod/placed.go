package pod

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"

	"github.com/everynode/everynode/internal/apiserver/decorated"
)

// Placer says where a new pod is from the start.
type Placer interface {
	// Place is asked about a pod that is admitted and valid, as it would be stored the next moment, and does not change
	// it. With the binding that it returns the pod is stored as one that was bound; nil leaves it without a node.
	Place(ctx context.Context, p *corev1.Pod) *corev1.Binding
	// Refuse tells that the binding which was returned last is refused, and why: the pod is stored without a node.
	Refuse(ctx context.Context, p *corev1.Pod, why error)
}

type placerKey struct{}

// PlacedBy has the placer asked about the pod that is created with the context. Requests cannot carry one: it is for
// those who write from inside the process.
func PlacedBy(ctx context.Context, p Placer) context.Context {
	return context.WithValue(ctx, placerKey{}, p)
}

// AskPlacers has the storage of pods ask placers from the moment on when it is opened; others stay as they are.
func AskPlacers(of generic.RESTOptionsGetter, targets *Targets) generic.RESTOptionsGetter {
	return asking{of, targets}
}

type asking struct {
	generic.RESTOptionsGetter
	targets *Targets
}

// GetRESTOptions implements generic.RESTOptionsGetter.
func (a asking) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := a.RESTOptionsGetter.GetRESTOptions(resource, example)
	if open := options.Decorator; resource == corev1.Resource("pods") && open != nil {
		options.Decorator = decorated.Wrap(open, func(pods storage.Interface) storage.Interface {
			return Placing(pods, a.targets)
		})
	}
	return options, err //nolint:wrapcheck // It is the getter's.
}

// Placing is the storage of pods that asks placers.
func Placing(pods storage.Interface, targets *Targets) storage.Interface {
	return placing{pods, targets}
}

type placing struct {
	storage.Interface
	targets *Targets
}

// Create implements storage.Interface.
func (s placing) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	pod, isPod := obj.(*corev1.Pod)
	placer, placed := ctx.Value(placerKey{}).(Placer)
	if isPod && placed && pod.Spec.NodeName == "" {
		if b := placer.Place(ctx, pod); b != nil {
			refused, err := s.createBound(ctx, key, pod, b, out, ttl)
			if refused == nil {
				return err
			}
			placer.Refuse(ctx, pod, refused)
		}
	}
	return s.Interface.Create(ctx, key, obj, out, ttl) //nolint:wrapcheck // The registry knows these errors.
}

// createBound stores the pod as one that was bound, and says how that ended; or stores nothing, and says why the
// binding is refused.
func (s placing) createBound(ctx context.Context, key string, pod *corev1.Pod, b *corev1.Binding, out runtime.Object,
	ttl uint64) (refused, err error) {
	decided := false
	err = s.targets.while(ctx, &b.Target, false, func(ctx context.Context, isThere func() error) error {
		decided = false
		err := isThere()
		if err == nil {
			err = s.Interface.Create(ctx, key, bound(pod, b, metav1.Now()), out, ttl)
			decided = !hasChanged(err)
		}
		return err //nolint:wrapcheck // The registry knows these errors.
	})
	if decided {
		return nil, err
	}
	return err, nil
}
