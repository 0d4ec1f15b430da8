package fit

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/everynode/everynode/internal/fit/volumes"
	"github.com/everynode/everynode/internal/objects/volume"
)

func hosts(names ...string) *Cluster {
	c := NewCluster()
	c.FollowVolumes()
	for _, name := range names {
		c.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{corev1.LabelHostname: name}},
			Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}}})
	}
	waits := storagev1.VolumeBindingWaitForFirstConsumer
	c.SetClass(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, Provisioner: volume.NoProvisioner,
		VolumeBindingMode: &waits})
	c.SetClass(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "made"}, Provisioner: "example.com/x",
		VolumeBindingMode: &waits,
		AllowedTopologies: []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelHostname, Values: []string{"b", "c"}}}}}})
	return c
}

func wanted(name, class string, edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	c.Spec.StorageClassName = &class
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func boundTo(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Annotations = name, map[string]string{volume.BindCompleted: "yes"}
	}
}

func localDisk(name, host, size string, edits ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	v.Spec.StorageClassName = "local"
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)}
	v.Status.Phase = corev1.VolumeAvailable
	if host != "" {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname,
				Operator: corev1.NodeSelectorOpIn, Values: []string{host}}}}}}}
	}
	for _, edit := range edits {
		edit(v)
	}
	return v
}

func user(name string, claims ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	for i, c := range claims {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: fmt.Sprint("v", i),
			VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c}}})
	}
	return p
}

// asked says for each node what speaks against the pod, or which volumes its claims would get.
func asked(c *Cluster, pod *corev1.Pod) string {
	q := c.Ask(NewPod(pod))
	if problem := q.Unbound(); problem != "" {
		return problem
	}
	out := ""
	for _, node := range c.Nodes() {
		out += node.Name + ":"
		if reasons := q.First(node, Trial{}); len(reasons) > 0 {
			out += reasons[0].Text + ". "
			continue
		}
		for _, use := range q.Uses(node) {
			name := "made"
			if use.Volume != nil {
				name = use.Volume.Name
			}
			out += use.Claim.Name + "=" + name + " "
		}
		out += ". "
	}
	return out
}

func TestVolumes(t *testing.T) {
	c := hosts("a", "b")
	say := func(what, want string, pod *corev1.Pod) {
		t.Helper()
		if got := asked(c, pod); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", what, got, want)
		}
	}
	say("no claim", "a:. b:. ", user("p"))
	say("no such claim", `persistentvolumeclaim "data" not found`, user("p", "data"))
	c.SetClaim(wanted("data", "fast"))
	say("a claim that nobody has bound yet", volumes.Unbound, user("p", "data"))
	c.SetClaim(wanted("data", "local", func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }))
	say("a claim that leaves", `persistentvolumeclaim "data" is being deleted`, user("p", "data"))
	c.SetClaim(wanted("data", "local", func(c *corev1.PersistentVolumeClaim) {
		c.Status.Phase,
			c.Spec.VolumeName = corev1.ClaimLost, "v"
	}))
	say("a claim that is lost", `persistentvolumeclaim "data" bound to non-existent persistentvolume "v"`,
		user("p", "data"))

	c.SetClaim(wanted("data", "local"))
	say("no volume", "a:"+volumes.TextNone+". b:"+volumes.TextNone+". ", user("p", "data"))
	c.SetVolume(localDisk("big", "b", "3Gi"))
	c.SetVolume(localDisk("small", "b", "2Gi"))
	say("on one node", "a:"+volumes.TextNone+". b:data=small . ", user("p", "data"))
	c.SetClaim(wanted("more", "local"))
	say("two claims", "a:"+volumes.TextNone+". b:data=small more=big . ", user("p", "data", "more"))
	c.SetVolume(localDisk("anywhere", "", "4Gi"))
	say("two claims, and one volume that reaches everything", "a:"+volumes.TextNone+". b:data=small more=big . ",
		user("p", "data", "more"))
	c.Promise("small", "ns/other")
	say("one is promised", "a:data=anywhere . b:data=big . ", user("p", "data"))
	c.TakeBack("small", "ns/somebody")
	say("somebody else takes back", "a:data=anywhere . b:data=big . ", user("p", "data"))
	c.TakeBack("small", "ns/other")
	c.Promise("small", "ns/other")
	c.DeleteVolume("small")
	c.SetVolume(localDisk("small", "b", "2Gi"))
	say("a new one has the name of one that was promised", "a:data=anywhere . b:data=small . ", user("p", "data"))
	c.SetVolume(localDisk("kept", "a", "1Gi", func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "data"}
	}))
	say("one is kept for the claim", "a:data=kept . b:"+volumes.TextNone+". ", user("p", "data"))

	c.SetClaim(wanted("data", "local", boundTo("kept")))
	say("bound", "a:. b:"+volumes.TextElsewhere+". ", user("p", "data"))
	c.DeleteVolume("kept")
	say("the volume is gone", "a:"+volumes.TextGone+". b:"+volumes.TextGone+". ", user("p", "data"))

	c.SetClaim(wanted("new", "made"))
	say("somebody makes it where it may be", "a:"+volumes.TextNone+". b:new=made . ", user("p", "new"))
	c.SetClaim(wanted("new", "made", func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{volume.SelectedNode: "c"} }))
	say("somebody makes it for another node", "a:"+volumes.TextNone+". b:"+volumes.TextNone+". ", user("p", "new"))
	c.DeleteClass("made")
	say("the class is gone", volumes.Unbound, user("p", "new"))
}

func TestClaimOfOnePod(t *testing.T) {
	c := hosts("a", "b")
	c.SetVolume(localDisk("v", "", "1Gi"))
	c.SetClaim(wanted("data", "local", boundTo("v"), func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	}))
	other := user("other", "data")
	other.Spec.NodeName = "b"
	c.SetPod(other)
	if got := asked(c, user("p", "data")); got != "a:"+volumes.TextClaimShared+". b:"+volumes.TextClaimShared+". " {
		t.Error(got)
	}
	if reasons := c.Ask(NewPod(user("p", "data"))).First(c.Node("b"),
		Trial{Removed: []*Pod{NewPod(other)}}); len(reasons) != 0 {
		t.Errorf("without the other pod it still does not fit: %v", reasons)
	}
	c.DeletePod("other")
	if got := asked(c, user("p", "data")); got != "a:. b:. " {
		t.Error(got)
	}
}

func TestEphemeralVolume(t *testing.T) {
	c := hosts("a")
	pod := user("p")
	pod.Spec.Volumes = []corev1.Volume{{Name: "scratch",
		VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	if got := asked(c, pod); got != `waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"` {
		t.Error(got)
	}
	c.SetVolume(localDisk("v", "", "1Gi"))
	claim := wanted("p-scratch", "local", boundTo("v"))
	c.SetClaim(claim)
	if got := asked(c, pod); got != "PVC ns/p-scratch was not created for pod ns/p (pod is not owner)" {
		t.Error(got)
	}
	claim = claim.DeepCopy()
	claim.OwnerReferences = []metav1.OwnerReference{{UID: "p", Controller: ptr.To(true)}}
	c.SetClaim(claim)
	if got := asked(c, pod); got != "a:. " {
		t.Error(got)
	}
}

func TestWhoDoesNotFollowVolumesIsNotAskedAboutThem(t *testing.T) {
	c := NewCluster()
	c.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{corev1.ResourcePods: resource.MustParse("10")}}})
	pod := user("p", "data")
	if got := asked(c, pod); got != "a:. " {
		t.Error(got)
	}
	pod.Spec.NodeName = "a"
	c.SetPod(pod)
	c.DeletePod("p")
}

// TestVolumesAreFoundByLookingAtAll has random events, and compares with a search through everything.
func TestVolumesAreFoundByLookingAtAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := []string{"a", "b", "c"}
		c := hosts(nodes...)
		all, promised := map[string]*corev1.PersistentVolume{}, map[string]string{}
		claim := wanted("data", "local")
		c.SetClaim(claim)
		for range rapid.IntRange(0, 20).Draw(t, "events") {
			name := fmt.Sprint("v", rapid.IntRange(0, 5).Draw(t, "volume"))
			switch rapid.IntRange(0, 5).Draw(t, "event") {
			case 0:
				c.DeleteVolume(name)
				delete(all, name)
				delete(promised, name)
			case 1:
				c.Promise(name, "ns/other")
				promised[name] = "ns/other"
			case 2:
				c.TakeBack(name, "ns/other")
				delete(promised, name)
			default:
				v := localDisk(name, rapid.SampledFrom(append(nodes, "")).Draw(t, "host"),
					rapid.SampledFrom([]string{"500Mi", "1Gi", "2Gi"}).Draw(t,
						"size"), func(v *corev1.PersistentVolume) {
						switch rapid.IntRange(0, 5).Draw(t, "state") {
						case 0:
							v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "other"}
						case 1:
							v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "data", UID: "data"}
						case 2:
							v.Spec.StorageClassName = "made"
						case 3:
							v.Status.Phase = corev1.VolumePending
						}
					})
				c.SetVolume(v)
				all[name] = v
				if v.Spec.ClaimRef != nil {
					delete(promised, name)
				}
			}
		}
		for _, node := range nodes {
			want, blocked := naive(claim, node, all, promised)
			q := c.Ask(NewPod(user("p", "data")))
			fits := len(q.First(c.Node(node), Trial{})) == 0
			if fits != (len(want) > 0 && !blocked) {
				t.Fatalf("on %s it fits: %v; good are %v", node, fits, want)
			}
			if uses := q.Uses(c.Node(node)); fits && !slices.Contains(want, uses[0].Volume.Name) {
				t.Fatalf("on %s it gets %s of %v", node, uses[0].Volume.Name, want)
			}
		}
	})
}

// Ten thousand volumes that are not for one host alone are looked through once for a pod, and not once for each of
// fifty thousand nodes.
func TestVolumesForAllNodesAreSortedOnce(t *testing.T) {
	c := hosts("a", "b")
	for i := range 10_000 {
		c.SetVolume(localDisk(fmt.Sprint("v", i), "", "1Gi"))
	}
	c.SetClaim(wanted("data", "local"))
	q := c.Ask(NewPod(user("p", "data")))
	var before, after runtime.MemStats
	for i, name := range []string{"a", "b"} {
		runtime.ReadMemStats(&before)
		reasons := q.First(c.Node(name), Trial{})
		runtime.ReadMemStats(&after)
		if uses := q.Uses(c.Node(name)); len(reasons) > 0 || len(uses) != 1 || uses[0].Volume.Name != "v0" {
			t.Errorf("on %s: %v, %v", name, reasons, uses)
		}
		if bytes := after.TotalAlloc - before.TotalAlloc; i > 0 && bytes > 20_000 {
			t.Errorf("the second node costs %d bytes", bytes)
		}
	}
}

// naive lists the volumes that a claim may get on a node; blocked says that one kept for it is elsewhere.
func naive(claim *corev1.PersistentVolumeClaim, node string, all map[string]*corev1.PersistentVolume,
	promised map[string]string) (good []string, blocked bool) {
	reaches := func(v *corev1.PersistentVolume) bool {
		if v.Spec.NodeAffinity == nil {
			return true
		}
		selector, err := nodeaffinity.NewNodeSelector(v.Spec.NodeAffinity.Required)
		return err == nil && selector.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node,
			Labels: map[string]string{corev1.LabelHostname: node}}})
	}
	var kept *corev1.PersistentVolume
	for name, v := range all {
		large := v.Spec.Capacity.Storage().Cmp(*claim.Spec.Resources.Requests.Storage()) >= 0
		switch ref := v.Spec.ClaimRef; {
		case ref != nil && ref.Name == claim.Name && large:
			if kept == nil || name < kept.Name {
				kept = v
			}
		case ref == nil && large && v.Status.Phase == corev1.VolumeAvailable && v.Spec.StorageClassName == "local" &&
			promised[name] == "" && reaches(v):
			good = append(good, name)
		}
	}
	if kept != nil {
		return []string{kept.Name}, !reaches(kept)
	}
	return good, false
}
