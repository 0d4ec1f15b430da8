package scheduler

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/fit/volumes"
	"github.com/everynode/everynode/internal/objects/volume"
)

func waitingClass(provisioner string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local", UID: "class"}, Provisioner: provisioner,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)}
}

func claimOf(name string) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
		UID: types.UID("claim-" + name)}}
	c.Spec.StorageClassName = ptr.To("local")
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	return c
}

func volumeOn(name, host string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("volume-" + name)}}
	v.Spec.StorageClassName = "local"
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname,
			Operator: corev1.NodeSelectorOpIn, Values: []string{host}}}}}}}
	v.Status.Phase = corev1.VolumeAvailable
	return v
}

func using(claims ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, name := range claims {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
		}
	}
}

func (c *cluster) volume(name string) *corev1.PersistentVolume {
	c.t.Helper()
	v, err := c.client.CoreV1().PersistentVolumes().Get(c.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

// finish binds a claim to the volume that names it, as the controller does.
func (c *cluster) finish(claim, volumeName string) {
	c.t.Helper()
	held, err := c.client.CoreV1().PersistentVolumeClaims("default").Get(c.t.Context(), claim, metav1.GetOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	held.Spec.VolumeName = volumeName
	metav1.SetMetaDataAnnotation(&held.ObjectMeta, volume.BindCompleted, "yes")
	held.Status.Phase = corev1.ClaimBound
	if _, err := c.client.CoreV1().PersistentVolumeClaims("default").Update(c.t.Context(), held,
		metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
	c.settle()
}

func TestAClaimGetsItsVolumeWithThePodsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "2", "4Gi"), node("b", "2", "4Gi"), waitingClass(volume.NoProvisioner), claimOf("data"),
			volumeOn("v", "b"), pod("p", using("data")))
		v := c.volume("v")
		if ref := v.Spec.ClaimRef; ref == nil || ref.UID != "claim-data" ||
			v.Annotations[volume.BoundByController] == "" {
			t.Fatalf("the volume is %+v", v)
		}
		if on := c.pod("p").Spec.NodeName; on != "" {
			t.Fatalf("the pod is on %s before it has its volume", on)
		}
		c.finish("data", "v") // no pause: the pod goes on at once
		c.expectOn("p", "b")
	})
}

func TestRoomIsKeptWhileAClaimGetsItsVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "1", "4Gi"), waitingClass(volume.NoProvisioner), claimOf("data"), volumeOn("v", "a"),
			pod("p", using("data"), requests("1", "1Gi")))
		c.create(pod("quick", requests("1", "1Gi")))
		if on := c.pod("quick").Spec.NodeName; on != "" {
			t.Fatal("another pod took the room")
		}
		c.finish("data", "v")
		c.expectOn("p", "a")
	})
}

func TestTwoPodsGetTwoVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "2", "4Gi"), waitingClass(volume.NoProvisioner), claimOf("one"), claimOf("two"),
			volumeOn("v", "a"), volumeOn("w", "a"),
			pod("p", using("one")), pod("q", using("two")))
		has := map[types.UID]bool{}
		for _, name := range []string{"v", "w"} {
			if ref := c.volume(name).Spec.ClaimRef; ref != nil {
				has[ref.UID] = true
			}
		}
		if !has["claim-one"] || !has["claim-two"] {
			t.Errorf("the volumes are for %v", has)
		}
	})
}

func TestAPodWaitsForItsClaims(t *testing.T) {
	const help = ". preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
	synctest.Test(t, func(t *testing.T) {
		immediate := waitingClass(volume.NoProvisioner)
		immediate.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
		c := start(t, node("a", "2", "4Gi"), immediate, pod("p", using("data")))
		c.expectPending("p", `0/1 nodes are available: persistentvolumeclaim "data" not found`+help)
		c.create(claimOf("data"))
		time.Sleep(2 * time.Second)
		c.settle()
		c.expectPending("p", "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims"+help)
		c.create(volumeOn("v", "a"))
		time.Sleep(5 * time.Second)
		c.finish("data", "v")
		c.expectOn("p", "a")
	})
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "2", "4Gi"), waitingClass(volume.NoProvisioner), claimOf("data"),
			volumeOn("v", "elsewhere"), pod("p", using("data")))
		c.expectPending("p", "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind"+help)
		c.create(volumeOn("w", "a"))
		time.Sleep(2 * time.Second)
		c.settle()
		if ref := c.volume("w").Spec.ClaimRef; ref == nil || ref.UID != "claim-data" {
			t.Fatalf("the new volume is for %v", ref)
		}
	})
}

func TestSomebodyMakesTheVolumeForTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "2", "4Gi"), waitingClass("example.com/disks"), claimOf("data"),
			pod("p", using("data")))
		claim, err := c.client.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "data", metav1.GetOptions{})
		if err != nil || claim.Annotations[volume.SelectedNode] != "a" {
			t.Fatalf("%v, %v", claim, err)
		}
		c.create(volumeOn("made", "a"))
		c.finish("data", "made")
		c.expectOn("p", "a")
	})
}

func TestAVolumeThatAClaimDidNotGetIsFreeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "2", "4Gi"))
		tries := 0
		c.client.PrependReactor("update", "persistentvolumes",
			func(action clienttesting.Action) (bool, runtime.Object, error) {
				tries++
				v := action.(clienttesting.UpdateAction).GetObject().(*corev1.PersistentVolume)
				return v.Spec.ClaimRef.Name == "one", nil, apierrors.NewForbidden(corev1.Resource("persistentvolumes"), "v",
					nil)
			})
		c.create(waitingClass(volume.NoProvisioner), claimOf("one"), claimOf("two"), volumeOn("v", "a"),
			pod("p", using("one")))
		time.Sleep(time.Minute)
		c.settle()
		if tries < 3 || tries > 20 {
			t.Errorf("%d tries in a minute", tries)
		}
		if err := c.client.CoreV1().Pods("default").Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.settle()
		c.create(pod("q", using("two")))
		time.Sleep(15 * time.Second)
		c.settle()
		if ref := c.volume("v").Spec.ClaimRef; ref == nil || ref.Name != "two" {
			t.Errorf("the volume is for %v", ref)
		}
	})
}

func TestAClaimThatCannotBeGivenItsVolumeIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, node("a", "2", "4Gi"))
		refused := 0
		c.client.PrependReactor("update", "persistentvolumes",
			func(clienttesting.Action) (bool, runtime.Object, error) {
				refused++
				if refused > 1 {
					return false, nil, nil
				}
				return true, nil, apierrors.NewConflict(corev1.Resource("persistentvolumes"), "v", nil)
			})
		c.create(waitingClass(volume.NoProvisioner), claimOf("data"), volumeOn("v", "a"), pod("p", using("data")))
		time.Sleep(15 * time.Second)
		c.settle()
		if ref := c.volume("v").Spec.ClaimRef; ref == nil || refused < 2 {
			t.Errorf("after %d writes the volume is for %v", refused, ref)
		}
	})
}

// What a pod was promised whose claim does not get its volume is news for others: they are not left to be tried again
// by the clock.
func TestWhatAClaimDidNotGetIsOfferedToOthers(t *testing.T) {
	client, now := fake.NewClientset(), clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	s, err := New(Config{Informers: sharedInformers{informers.NewSharedInformerFactory(client, 0)},
		Writer: NewWriter(client), Events: NewEventSink(client), Clock: now})
	if err != nil {
		t.Fatal(err)
	}
	l, one, v := s.loop, claimOf("one"), volumeOn("v", "a")
	l.onNode(node("a", "1", "4Gi"), false)
	for _, object := range []metav1.Object{waitingClass(volume.NoProvisioner), one, claimOf("two"), v} {
		l.onStorage(message{object: object})
	}
	first := pod("first", using("one"), requests("1", "1Gi"))
	for _, p := range []*corev1.Pod{first, pod("wants-the-volume", using("two")),
		pod("wants-the-room", requests("1", "1Gi"))} {
		l.onPod(p, false)
		l.schedule(t.Context(), l.queue.Pop(now.Now()))
	}
	if active, backoff, parked := l.queue.Lengths(); active != 0 || backoff != 0 || parked != 3 {
		t.Fatalf("%d, %d and %d pods, want all three to wait:\n%s", active, backoff, parked, l.queue.Dump())
	}
	l.onFailedClaiming(t.Context(), message{uid: first.UID, err: errors.New("refused"),
		uses: []volumes.Use{{Claim: one, Volume: v}}})
	if active, backoff, parked := l.queue.Lengths(); active != 0 || backoff != 3 || parked != 0 {
		t.Errorf("%d, %d and %d pods, want all three to be tried again:\n%s", active, backoff, parked, l.queue.Dump())
	}
}

// A pod that can only be on one node waits for a local volume there, and the node is not called as its host is.
func TestALocalVolumeOfANodeWithAnotherName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other := node("node-1", "2", "4Gi")
		other.Labels = map[string]string{corev1.LabelHostname: "machine-1"}
		pinned := pod("p", using("data"))
		pinned.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{"node-1"}}}}}}}}
		c := start(t, other, waitingClass(volume.NoProvisioner), claimOf("data"), pinned)
		c.create(volumeOn("v", "machine-1"))
		time.Sleep(15 * time.Second)
		c.settle()
		if ref := c.volume("v").Spec.ClaimRef; ref == nil || ref.Name != "data" {
			t.Errorf("the volume is for %v", ref)
		}
	})
}
