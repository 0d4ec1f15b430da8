// Package copies reads ConfigMaps and Secrets of the namespaces whose DaemonSets have content, and writes
// the copies that contents asks for. It is the only part that does.
//
// It needs no right in other namespaces, and none on Secrets where no policy wants them as content: a
// RoleBinding in the namespace gives them (ClusterRoles everynode:content and everynode:content-secrets).
package copies

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/controller/daemonset/contents"
)

// Access reads and writes through a client.
type Access struct{ Client kubernetes.Interface }

// Follow reads a kind in a namespace until ctx ends, and tells of what cannot be read. It returns at once.
func (a Access) Follow(
	ctx context.Context, namespace string, kind content.Kind,
	handler toolscache.ResourceEventHandler, tell func(contents.Sight),
) {
	lw, of := a.source(namespace, kind)
	say := func(read bool, why string) {
		if ctx.Err() == nil {
			tell(contents.Sight{Namespace: namespace, Kind: kind, Read: read, Why: why})
		}
	}
	noticed := &noticed{of: lw, kind: kind, say: say, now: time.Now}
	informer := toolscache.NewSharedIndexInformer(noticed, of, 0, toolscache.Indexers{})
	if err := informer.SetTransform(toolscache.TransformFunc(without)); err != nil {
		say(false, err.Error())
		return
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		say(false, err.Error())
		return
	}
	go informer.RunWithContext(ctx)
	go func() {
		select {
		case <-ctx.Done():
		case <-registration.HasSyncedChecker().Done():
			noticed.wasRead()
		}
	}()
}

// without drops what nobody reads: who wrote which field, tokens, and what Helm has installed, which is large.
func without(obj any) (any, error) {
	if m, is := obj.(metav1.Object); is {
		m.SetManagedFields(nil)
	}
	s, is := obj.(*corev1.Secret)
	if is && (s.Type == corev1.SecretTypeServiceAccountToken || content.OfSecret(s).IsRelease()) {
		s.Data = nil
	}
	return obj, nil
}

func (a Access) source(namespace string, kind content.Kind) (toolscache.ListerWatcherWithContext, runtime.Object) {
	core := a.Client.CoreV1()
	if kind == content.Secret {
		return &toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return core.Secrets(namespace).List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return core.Secrets(namespace).Watch(ctx, o)
			},
		}, &corev1.Secret{}
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return core.ConfigMaps(namespace).List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return core.ConfigMaps(namespace).Watch(ctx, o)
		},
	}, &corev1.ConfigMap{}
}

// settling is how long a kind must have been watched again that could not be read: until then what happened meanwhile
// has been taken in.
const settling = 5 * time.Second

// patience is how long a kind may fail to be read before that is told. A refusal is told at once.
const patience = 30 * time.Second

// noticed tells of answers that refuse a kind, and of its being read again after that.
type noticed struct {
	of   toolscache.ListerWatcherWithContext
	kind content.Kind
	say  func(read bool, why string)
	now  func() time.Time

	mu sync.Mutex
	// once: it has been read. refused counts the answers that refuse it, told says whether the last one was told and
	// nothing else since.
	once, told bool
	refused    int
	// failing is since when each answer is an error; zero for not.
	failing time.Time
}

// wasRead says that the kind has been read for the first time.
func (n *noticed) wasRead() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.once, n.told = true, false
	n.say(true, "")
}

// refuse says that the kind cannot be read.
func (n *noticed) refuse(why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.told = true
	n.refused++
	n.say(false, why)
}

// watched says that the kind is read again, if it was not, when it has been watched for long enough.
func (n *noticed) watched(ctx context.Context) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.told || !n.once {
		return
	}
	refused := n.refused
	timer := time.AfterFunc(settling, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.told && n.refused == refused {
			n.told = false
			n.say(true, "")
		}
	})
	context.AfterFunc(ctx, func() { timer.Stop() })
}

func (n *noticed) note(err error) {
	role := "everynode:content"
	if n.kind == content.Secret {
		role = "everynode:content-secrets"
	}
	switch lasts := n.lasts(err); {
	case apierrors.IsForbidden(err):
		n.refuse(fmt.Sprintf("%v; a RoleBinding to ClusterRole %s in the namespace allows it", err, role))
	case lasts >= patience:
		n.refuse(fmt.Sprintf("%ss of the namespace cannot be read: %v", n.kind, err))
	case lasts > 0:
		klog.V(2).InfoS("Cannot read what is content, will try again", "kind", n.kind, "err", err)
	}
}

// lasts is for how long answers are errors by now; 0 for one that is none, or that the reader mends by itself.
func (n *noticed) lasts(err error) time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		n.failing = time.Time{}
		return 0
	}
	if n.failing.IsZero() {
		n.failing = n.now()
	}
	return max(n.now().Sub(n.failing), 1)
}

// ListWithContext lists.
func (n *noticed) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := n.of.ListWithContext(ctx, o)
	n.note(err)
	return list, err
}

// WatchWithContext watches.
func (n *noticed) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := n.of.WatchWithContext(ctx, o)
	n.note(err)
	if err == nil {
		n.watched(ctx)
	}
	return w, err
}

// List lists.
func (n *noticed) List(o metav1.ListOptions) (runtime.Object, error) {
	return n.ListWithContext(context.Background(), o)
}

// Watch watches.
func (n *noticed) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return n.WatchWithContext(context.Background(), o)
}

// CarryOut does a job, in its order, as far as it gets.
func (a Access) CarryOut(ctx context.Context, j *contents.Job) contents.Result {
	r := contents.Result{Job: j}
	if j.Key != nil {
		made, err := a.makeKey(ctx, j.Key)
		if err != nil {
			r.Why = fmt.Sprintf("Secret %s cannot be made: %v", j.Key.Name, err)
			return r
		}
		r.Made = append(r.Made, made)
	}
	for _, o := range j.Make {
		made, err := a.make(ctx, o)
		if err != nil {
			r.Why = fmt.Sprintf("copy %s cannot be made: %v", o.GetName(), err)
			return r
		}
		r.Made = append(r.Made, made)
	}
	for _, o := range j.Delete {
		if r.Left != "" && o.GetLabels()[content.Label] == content.IsManifest {
			continue // It lists what may be there still.
		}
		is, err := a.delete(ctx, o)
		switch {
		case err != nil:
			r.Left = cmp.Or(r.Left, fmt.Sprintf("copy %s cannot be deleted: %v", o.GetName(), err))
		case is != nil:
			r.Made = append(r.Made, is)
		default:
			r.Deleted = append(r.Deleted, o)
		}
	}
	return r
}

// makeKey makes the key of a namespace; if somebody was faster it is that one's.
func (a Access) makeKey(ctx context.Context, s *corev1.Secret) (metav1.Object, error) {
	secrets := a.Client.CoreV1().Secrets(s.Namespace)
	if len(s.Data) == 0 {
		key := make([]byte, 32)
		if _, err := rand.Read(key); err != nil {
			return nil, fmt.Errorf("find a key: %w", err)
		}
		s = s.DeepCopy()
		s.Data = map[string][]byte{"key": key}
	}
	made, err := secrets.Create(ctx, s, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return secrets.Get(ctx, s.Name, metav1.GetOptions{})
	}
	return made, err
}

// make makes a copy. One that is there must be just that; it may have lost its owner, when a DaemonSet was
// deleted without its pods.
func (a Access) make(ctx context.Context, o metav1.Object) (metav1.Object, error) {
	switch o := o.(type) {
	case *corev1.ConfigMap:
		return ensure(ctx, a, a.Client.CoreV1().ConfigMaps(o.Namespace), o, func(have *corev1.ConfigMap) bool {
			return ptr.Deref(have.Immutable, false) && maps.Equal(have.Data, o.Data) &&
				sameBinary(have.BinaryData, o.BinaryData)
		})
	case *corev1.Secret:
		return ensure(ctx, a, a.Client.CoreV1().Secrets(o.Namespace), o, func(have *corev1.Secret) bool {
			return ptr.Deref(have.Immutable, false) && sameBinary(have.Data, o.Data)
		})
	}
	return nil, fmt.Errorf("%T is no content", o)
}

// store is a client of one kind.
type store[T any] interface {
	Create(ctx context.Context, obj T, o metav1.CreateOptions) (T, error)
	Get(ctx context.Context, name string, o metav1.GetOptions) (T, error)
	Update(ctx context.Context, obj T, o metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, o metav1.DeleteOptions) error
}

// ensure has the API hold a copy, which is the DaemonSet's. Same reports whether one that is there is just that.
func ensure[T metav1.Object](
	ctx context.Context, a Access, in store[T], want T, same func(have T) bool,
) (metav1.Object, error) {
	made, err := in.Create(ctx, want, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return made, err
	}
	have, err := in.Get(ctx, want.GetName(), metav1.GetOptions{})
	switch {
	case err != nil:
		return nil, err
	case !same(have):
		return nil, errors.New("there is another object of that name")
	case own(have, want):
		return have, nil
	}
	err = a.mayAdopt(ctx, want)
	if err != nil {
		return nil, err
	}
	return in.Update(ctx, have, metav1.UpdateOptions{})
}

// mayAdopt returns an error unless the DaemonSet of a copy is there and stays. One that is deleted without its pods
// leaves its copies too: taken back they would go with it.
func (a Access) mayAdopt(ctx context.Context, o metav1.Object) error {
	owner := metav1.GetControllerOfNoCopy(o)
	live, err := a.Client.AppsV1().DaemonSets(o.GetNamespace()).Get(ctx, owner.Name, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("read the DaemonSet that is to own it: %w", err)
	case live.UID != owner.UID:
		return errors.New("the DaemonSet that is to own it is gone")
	case live.DeletionTimestamp != nil:
		return errors.New("the DaemonSet that is to own it is being deleted")
	}
	return nil
}

// own makes an object the DaemonSet's; true says that it was.
func own(have, want metav1.Object) bool {
	owned := apiequality.Semantic.DeepEqual(have.GetOwnerReferences(), want.GetOwnerReferences())
	if owned && maps.Equal(have.GetLabels(), want.GetLabels()) {
		return true
	}
	have.SetOwnerReferences(want.GetOwnerReferences())
	have.SetLabels(want.GetLabels())
	return false
}

func sameBinary(a, b map[string][]byte) bool {
	return maps.EqualFunc(a, b, func(x, y []byte) bool { return string(x) == string(y) })
}

// delete deletes that object and no other of its name; that it is gone is as good. One that has changed stays, and is
// returned: another DaemonSet may own it now.
func (a Access) delete(ctx context.Context, o metav1.Object) (is metav1.Object, err error) {
	core := a.Client.CoreV1()
	switch o.(type) {
	case *corev1.ConfigMap:
		return remove(ctx, core.ConfigMaps(o.GetNamespace()), o)
	case *corev1.Secret:
		return remove(ctx, core.Secrets(o.GetNamespace()), o)
	}
	return nil, fmt.Errorf("%T is no content", o)
}

func remove[T metav1.Object](ctx context.Context, from store[T], o metav1.Object) (metav1.Object, error) {
	uid, version := o.GetUID(), o.GetResourceVersion()
	err := from.Delete(ctx, o.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if !apierrors.IsConflict(err) {
		return nil, err
	}
	is, err := from.Get(ctx, o.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && is.GetUID() != uid:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return is, nil
}
