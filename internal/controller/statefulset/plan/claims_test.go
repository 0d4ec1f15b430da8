package plan

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// claiming is a set of two pods with a claim each.
func claiming(whenDeleted, whenScaled appsv1.PersistentVolumeClaimRetentionPolicyType) *appsv1.StatefulSet {
	set := input(2, "").Set
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data", Labels: map[string]string{"tier": "gold"}},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("local")}}}
	set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: whenDeleted, WhenScaled: whenScaled}
	return set
}

func TestClaims(t *testing.T) {
	set := claiming("Retain", "Retain")
	claims := Claims(set, "web-1")
	if len(claims) != 1 || claims[0].Name != "data-web-1" || claims[0].Namespace != "ns" || fmt.Sprint(claims[0].Labels) != "map[app:db tier:gold]" ||
		*claims[0].Spec.StorageClassName != "local" || len(claims[0].OwnerReferences) != 0 {
		t.Errorf("the claims are %+v", claims)
	}
	if set.Spec.VolumeClaimTemplates[0].Labels["app"] != "" {
		t.Error("the template was changed")
	}
	in := Input{Set: set, Now: noon, Update: Revision{"web-new", &corev1.PodTemplateSpec{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data"}, {Name: "tmp"}}}}}}
	in.Current = in.Update
	p := Next(in).Create[0]
	if len(p.Spec.Volumes) != 2 || p.Spec.Volumes[0].Name != "tmp" || p.Spec.Volumes[1].PersistentVolumeClaim.ClaimName != "data-web-0" {
		t.Errorf("the pod's volumes are %+v", p.Spec.Volumes)
	}
	if len(in.Update.Template.Spec.Volumes) != 2 || in.Update.Template.Spec.Volumes[0].Name != "data" {
		t.Error("the template was changed")
	}
}

func TestOwners(t *testing.T) {
	const keep, remove = appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	pod := func(number string) *corev1.Pod { return input(9, number).Pods[0] }
	for _, c := range []struct {
		deleted, scaled      appsv1.PersistentVolumeClaimRetentionPolicyType
		wanted, tooMany, new string
	}{
		{keep, keep, "", "", ""},
		{remove, keep, "StatefulSet/web ", "StatefulSet/web ", "StatefulSet/web "},
		{keep, remove, "", "Pod/web-5 ", ""},
		{remove, remove, "StatefulSet/web ", "Pod/web-5 ", "StatefulSet/web "},
	} {
		set := claiming(c.deleted, c.scaled)
		foreign := metav1.OwnerReference{Kind: "Backup", Name: "b", UID: "backup"}
		for name, want := range map[string]struct {
			pod  *corev1.Pod
			refs string
		}{"a wanted pod": {pod("1"), c.wanted}, "one too many": {pod("5"), c.tooMany}, "no pod": {nil, c.new}} {
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{foreign}}}
			refs, changed := Owners(set, want.pod, claim)
			got := ""
			for _, r := range refs[1:] {
				got += r.Kind + "/" + r.Name + " "
			}
			if got != want.refs || refs[0].UID != "backup" || changed != (want.refs != "") {
				t.Errorf("%s, %s: %s has %q (changed: %v), want %q", c.deleted, c.scaled, name, got, changed, want.refs)
			}
			claim.OwnerReferences = refs
			if _, changed := Owners(set, want.pod, claim); changed {
				t.Errorf("%s, %s: %s is changed for ever", c.deleted, c.scaled, name)
			}
			if back, _ := Owners(claiming(keep, keep), want.pod, claim); len(back) != 1 {
				t.Errorf("%s, %s: %s keeps %v when the policy keeps claims", c.deleted, c.scaled, name, back)
			}
		}
	}
	others := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Kind: "Backup", UID: "backup", Controller: ptr.To(true)}}}}
	if refs, changed := Owners(claiming(remove, remove), pod("1"), others); changed || len(refs) != 1 {
		t.Errorf("a claim that somebody else controls gets %v", refs)
	}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data-web-1"}}
	if why, leaves := Leaves(claim, "web-1"); leaves {
		t.Error(why)
	}
	claim.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod", Name: "web-1", UID: "earlier"}}
	if why, leaves := Leaves(claim, "web-1"); !leaves || why != "pvc data-web-1 goes with the earlier pod web-1" {
		t.Error(why)
	}
	claim.DeletionTimestamp = &metav1.Time{}
	if why, leaves := Leaves(claim, "web-1"); !leaves || why != "pvc data-web-1 is being deleted" {
		t.Error(why)
	}
}
