package volume

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

func claim(change func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "c1"}}
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.Spec.StorageClassName = ptr.To("local")
	c.Spec.Resources.Requests = size("2Gi")
	if change != nil {
		change(c)
	}
	return c
}

func made(name string, change func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	v.Spec.StorageClassName = "local"
	v.Spec.Capacity = size("2Gi")
	v.Status.Phase = corev1.VolumeAvailable
	if change != nil {
		change(v)
	}
	return v
}

func size(text string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(text)}
}

func TestUnfit(t *testing.T) {
	for name, c := range map[string]struct {
		volume *corev1.PersistentVolume
		want   string
	}{
		"good":    {made("v", nil), ""},
		"larger":  {made("v", func(v *corev1.PersistentVolume) { v.Spec.Capacity = size("3Gi") }), ""},
		"leaving": {made("v", func(v *corev1.PersistentVolume) { v.DeletionTimestamp = &metav1.Time{} }), `the volume is marked for deletion "v"`},
		"small":   {made("v", func(v *corev1.PersistentVolume) { v.Spec.Capacity = size("1Gi") }), "requested PV is too small"},
		"class":   {made("v", func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "" }), "storageClassName does not match"},
		"old class": {made("v", func(v *corev1.PersistentVolume) {
			v.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "other"}
		}), "storageClassName does not match"},
		"attributes": {made("v", func(v *corev1.PersistentVolume) { v.Spec.VolumeAttributesClassName = ptr.To("fast") }), "volumeAttributesClassName does not match"},
		"mode":       {made("v", func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) }), "incompatible volumeMode"},
		"access": {made("v", func(v *corev1.PersistentVolume) {
			v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
		}), "incompatible accessMode"},
	} {
		if got := Unfit(c.volume, claim(nil)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestBest(t *testing.T) {
	anywhere := func(*corev1.PersistentVolume) bool { return true }
	volumes := []*corev1.PersistentVolume{
		made("big", func(v *corev1.PersistentVolume) { v.Spec.Capacity = size("9Gi") }),
		made("both", func(v *corev1.PersistentVolume) { v.Spec.AccessModes = append(v.Spec.AccessModes, corev1.ReadOnlyMany) }),
		made("z", func(v *corev1.PersistentVolume) { v.Spec.Capacity = size("3Gi") }),
		made("a", func(v *corev1.PersistentVolume) { v.Spec.Capacity = size("3Gi") }),
		made("pending", func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumePending }),
		made("taken", func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "other"}
		}),
	}
	if got := Want(claim(nil)).Best(volumes, anywhere); got == nil || got.Name != "a" {
		t.Errorf("the best is %v", got)
	}
	notA := func(v *corev1.PersistentVolume) bool { return v.Name != "a" && v.Name != "z" }
	if got := Want(claim(nil)).Best(volumes, notA); got == nil || got.Name != "big" {
		t.Errorf("without a and z the best is %v", got)
	}
	selecting := claim(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "ssd"}}
	})
	if got := Want(selecting).Best(volumes, anywhere); got != nil {
		t.Errorf("the claim selects %s", got.Name)
	}
	volumes[0].Labels = map[string]string{"disk": "ssd"}
	if got := Want(selecting).Best(volumes, anywhere); got == nil || got.Name != "big" {
		t.Errorf("the claim selects %v", got)
	}
}

func TestReserved(t *testing.T) {
	kept := func(uid string) *corev1.PersistentVolume {
		return made("v", func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "c"}
			v.Spec.ClaimRef.UID = "c1"
			if uid == "" {
				v.Spec.ClaimRef.UID = ""
			} else if uid != "c1" {
				v.Spec.ClaimRef.UID = "another"
			}
		})
	}
	for uid, want := range map[string]bool{"": true, "c1": true, "another": false} {
		if got := Want(claim(nil)).Reserved([]*corev1.PersistentVolume{kept(uid)}); (got != nil) != want {
			t.Errorf("UID %q: %v", uid, got)
		}
	}
	small := kept("c1")
	small.Spec.Capacity = size("1Gi")
	if got := Want(claim(nil)).Reserved([]*corev1.PersistentVolume{small}); got != nil {
		t.Error("a volume that is too small is taken")
	}
}

func local(host string) *corev1.PersistentVolume {
	return made("v", func(v *corev1.PersistentVolume) {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{host}}},
		}}}}
	})
}

func TestReaches(t *testing.T) {
	on := func(host string) map[string]string { return map[string]string{corev1.LabelHostname: host} }
	if !Reaches(made("v", nil), "n", nil) || !Reaches(local("a"), "n", on("a")) || Reaches(local("a"), "n", on("b")) {
		t.Error("a local volume is on its own node only, and one without affinity everywhere")
	}
	if OnlyHost(local("a")) != "a" || OnlyHost(made("v", nil)) != "" {
		t.Errorf("the hosts are %q and %q", OnlyHost(local("a")), OnlyHost(made("v", nil)))
	}
	two := local("a")
	two.Spec.NodeAffinity.Required.NodeSelectorTerms = append(two.Spec.NodeAffinity.Required.NodeSelectorTerms, corev1.NodeSelectorTerm{})
	if OnlyHost(two) != "" {
		t.Error("of two alternatives one is taken for all")
	}
}

func TestDefaultClass(t *testing.T) {
	class := func(name string, age time.Duration, marked string) *storagev1.StorageClass {
		return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(0, 0).Add(-age)),
			Annotations: map[string]string{defaultClass: marked}}}
	}
	if got := DefaultClass([]*storagev1.StorageClass{class("a", 0, "false")}); got != nil {
		t.Errorf("the default is %s", got.Name)
	}
	all := []*storagev1.StorageClass{class("old", time.Hour, "true"), class("z", time.Minute, "true"), class("b", time.Minute, "true"), class("new", 0, "")}
	if got := DefaultClass(all); got == nil || got.Name != "b" {
		t.Errorf("the default is %v", got)
	}
}

// TestBestWastesNothing compares with what a reader of the rule would do: no volume that takes the claim is better.
func TestBestWastesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany}
		var volumes []*corev1.PersistentVolume
		for i := range rapid.IntRange(0, 8).Draw(t, "volumes") {
			volumes = append(volumes, made(fmt.Sprint("v", i), func(v *corev1.PersistentVolume) {
				v.Spec.Capacity = size(fmt.Sprintf("%dGi", rapid.IntRange(1, 4).Draw(t, "size")))
				v.Spec.AccessModes = modes[:rapid.IntRange(1, 3).Draw(t, "modes")]
				if rapid.IntRange(0, 3).Draw(t, "class") == 0 {
					v.Spec.StorageClassName = "other"
				}
			}))
		}
		w := Want(claim(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = modes[:rapid.IntRange(1, 3).Draw(t, "wanted")]
		}))
		best := w.Best(volumes, func(*corev1.PersistentVolume) bool { return true })
		for _, v := range volumes {
			if !w.Takes(v) {
				if v == best {
					t.Fatalf("%s is not good for the claim", v.Name)
				}
				continue
			}
			switch {
			case best == nil:
				t.Fatalf("%s was not found", v.Name)
			case len(v.Spec.AccessModes) < len(best.Spec.AccessModes),
				len(v.Spec.AccessModes) == len(best.Spec.AccessModes) && v.Spec.Capacity.Storage().Cmp(*best.Spec.Capacity.Storage()) < 0:
				t.Fatalf("%s is better than %s", v.Name, best.Name)
			}
		}
	})
}

// A pod with a local volume is tried on every node of a fleet.
func TestThatALocalVolumeIsElsewhereCostsNothing(t *testing.T) {
	v := &corev1.PersistentVolume{}
	v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"here"}}}}}}}
	there := map[string]string{corev1.LabelHostname: "there"}
	if n := testing.AllocsPerRun(10, func() {
		if Reaches(v, "there", there) || Reaches(v, "nameless", nil) {
			t.Error("it is in reach of another host")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if !Reaches(v, "any", map[string]string{corev1.LabelHostname: "here"}) {
		t.Error("it is not in reach of its host")
	}
}
