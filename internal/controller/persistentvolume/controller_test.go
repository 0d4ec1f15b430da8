package persistentvolume

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/everynode/everynode/internal/objects/volume"
)

// indexer gives a fake cache the controller's indexes.
type indexer struct{ *crfake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, obj client.Object, field string, by client.IndexerFunc) error {
	i.WithIndex(obj, field, by)
	return nil
}

// stage is a controller whose cache is as it was told, whatever the API has.
func stage(t *testing.T, cached, stored []runtime.Object) (controller, *fake.Clientset) {
	t.Helper()
	b := crfake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithRuntimeObjects(cached...)
	if err := addIndexes(indexer{b}); err != nil {
		t.Fatal(err)
	}
	api := fake.NewClientset(stored...)
	account := Account{Client: api}
	return controller{reader: b.Build(), cfg: Config{Binder: account, VolumeProtection: account, ClaimProtection: account, Ephemeral: account}, unused: &unused{}}, api
}

func aClaim(name, class string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Finalizers: []string{volume.ClaimProtection}}}
	c.Spec.StorageClassName = &class
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	c.Status.Phase = corev1.ClaimPending
	return c
}

func aVolume(name, class string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Finalizers: []string{volume.Protection}}}
	v.Spec.StorageClassName = class
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	v.Status.Phase = corev1.VolumeAvailable
	return v
}

func request(c *corev1.PersistentVolumeClaim) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c)}
}

// A volume that was kept for a claim by name has just been given to it, and the cache does not show it yet.
func TestABoundClaimIsNotLostBecauseTheCacheIsBehind(t *testing.T) {
	claim := aClaim("c", "")
	claim.Spec.VolumeName, claim.Annotations, claim.Status.Phase = "v", map[string]string{volume.BindCompleted: "yes"}, corev1.ClaimBound
	before := aVolume("v", "")
	before.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "c"}
	given := before.DeepCopy()
	given.Spec.ClaimRef.UID, given.Status.Phase = claim.UID, corev1.VolumeBound
	anothers := given.DeepCopy()
	anothers.Spec.ClaimRef.UID = "another"
	for name, test := range map[string]struct {
		cached, stored []runtime.Object
		want           corev1.PersistentVolumeClaimPhase
	}{
		"given, not shown":     {[]runtime.Object{claim, before}, []runtime.Object{claim, given}, corev1.ClaimBound},
		"made, not shown":      {[]runtime.Object{claim}, []runtime.Object{claim, given}, corev1.ClaimBound},
		"gone":                 {[]runtime.Object{claim}, []runtime.Object{claim}, corev1.ClaimLost},
		"another's":            {[]runtime.Object{claim, anothers}, []runtime.Object{claim, anothers}, corev1.ClaimLost},
		"gone, still shown as": {[]runtime.Object{claim, before}, []runtime.Object{claim}, corev1.ClaimLost},
	} {
		c, api := stage(t, test.cached, test.stored)
		if _, err := c.reconcileClaim(t.Context(), request(claim)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got, err := api.CoreV1().PersistentVolumeClaims("ns").Get(t.Context(), "c", metav1.GetOptions{})
		if err != nil || got.Status.Phase != test.want {
			t.Errorf("%s: the claim is %s (%v), want %s", name, got.Status.Phase, err, test.want)
		}
	}
}

// Ten thousand claims that wait for their pods, and as many volumes, are not compared each with each: the scheduler does that.
func TestVolumesOfAClassThatWaitsAreNotLookedThrough(t *testing.T) {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "waits"}, Provisioner: volume.NoProvisioner, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
	waits, prompt, kept := aClaim("waits", "waits"), aClaim("prompt", "prompt"), aVolume("kept", "waits")
	kept.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "waits"}
	c, _ := stage(t, []runtime.Object{class, waits, prompt, kept, aVolume("free", "waits"), aVolume("now", "prompt")}, nil)
	for claim, want := range map[*corev1.PersistentVolumeClaim]string{waits: "kept", prompt: "now"} {
		in, err := c.gather(t.Context(), claim)
		if err != nil || len(in.Volumes) != 1 || in.Volumes[0].Name != want {
			t.Errorf("claim %s looks at %d volumes (%v), want %s", claim.Name, len(in.Volumes), err, want)
		}
	}
	for name, want := range map[string]int{"waits": 0, "prompt": 1} {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		c.volumeCreated(t.Context(), event.CreateEvent{Object: aVolume("new", name)}, q)
		if q.Len() != want {
			t.Errorf("a new volume of class %s is news for %d claims, want %d", name, q.Len(), want)
		}
		q.ShutDown()
	}
}

// One list of a namespace's pods answers for all of its claims that are to go.
func TestClaimsThatGoTogetherAreLookedAtTogether(t *testing.T) {
	var cached, stored []runtime.Object
	leaving := func(name string) *corev1.PersistentVolumeClaim {
		claim := aClaim(name, "")
		claim.DeletionTimestamp = ptr.To(metav1.Now())
		cached, stored = append(cached, claim), append(stored, claim)
		return claim
	}
	var claims []*corev1.PersistentVolumeClaim
	for i := range 10 {
		claims = append(claims, leaving(fmt.Sprint("c-", i)))
	}
	used := leaving("used")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}, Spec: corev1.PodSpec{NodeName: "n", Volumes: []corev1.Volume{{Name: "v",
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "used"}}}}}}
	c, api := stage(t, cached, append(stored, pod)) // the cache does not show the pod
	for _, claim := range append(claims, used, used) {
		if _, err := c.reconcileClaim(t.Context(), request(claim)); err != nil {
			t.Fatal(err)
		}
	}
	lists, written := 0, map[string]bool{}
	for _, a := range api.Actions() {
		if a.Matches("list", "pods") {
			lists++
		}
		if u, ok := a.(clienttesting.UpdateAction); ok && len(u.GetObject().(*corev1.PersistentVolumeClaim).Finalizers) == 0 {
			written[u.GetObject().(*corev1.PersistentVolumeClaim).Name] = true
		}
	}
	if lists != 3 { // one for all, and one each time that somebody asks about the one in use
		t.Errorf("the pods are listed %d times, want 3", lists)
	}
	if len(written) != 10 || written["used"] {
		t.Errorf("these may go: %v", written)
	}
}
