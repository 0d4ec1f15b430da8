package persistentvolume

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// expect fails unless there is exactly the one error, or none for an empty text.
func expect(t *testing.T, what string, errs field.ErrorList, want string) {
	t.Helper()
	if want == "" && len(errs) > 0 || want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want)) {
		t.Errorf("%s: %v, want %s", what, errs, want)
	}
}

func on(key string, values ...string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}}}}
}

func made(edits ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}}
	v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	v.Spec.Local = &corev1.LocalVolumeSource{Path: "/mnt/disk"}
	v.Spec.NodeAffinity = on("kubernetes.io/hostname", "a")
	SetDefaults(v)
	for _, edit := range edits {
		edit(v)
	}
	return v
}

// from replaces the local volume.
func from(source corev1.PersistentVolumeSource) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) { v.Spec.PersistentVolumeSource = source }
}

func TestVolume(t *testing.T) {
	v := made()
	if v.Status.Phase != corev1.VolumePending || v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimRetain || *v.Spec.VolumeMode != corev1.PersistentVolumeFilesystem {
		t.Errorf("the defaults are %+v", v)
	}
	type edit = func(*corev1.PersistentVolume)
	for name, c := range map[string]struct {
		edit edit
		want string
	}{
		"good":     {func(*corev1.PersistentVolume) {}, ""},
		"no modes": {func(v *corev1.PersistentVolume) { v.Spec.AccessModes = nil }, "spec.accessModes: Required value"},
		"a mode":   {func(v *corev1.PersistentVolume) { v.Spec.AccessModes[0] = "Always" }, `spec.accessModes: Unsupported value: "Always": supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"`},
		"for one pod": {func(v *corev1.PersistentVolume) {
			v.Spec.AccessModes = append(v.Spec.AccessModes, corev1.ReadWriteOncePod)
		}, "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"},
		"nothing in it":  {func(v *corev1.PersistentVolume) { v.Spec.Capacity["storage"] = resource.MustParse("0") }, `spec.capacity[storage]: Invalid value: "0": must be greater than zero`},
		"other amounts":  {func(v *corev1.PersistentVolume) { v.Spec.Capacity["cpu"] = resource.MustParse("1") }, "spec.capacity: Unsupported value"},
		"a policy":       {func(v *corev1.PersistentVolume) { v.Spec.PersistentVolumeReclaimPolicy = "Keep" }, `spec.persistentVolumeReclaimPolicy: Unsupported value: "Keep": supported values: "Delete", "Recycle", "Retain"`},
		"a class":        {func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "A" }, `spec.storageClassName: Invalid value: "A"`},
		"a volume mode":  {func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeMode("Tape")) }, `spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"`},
		"attributes":     {func(v *corev1.PersistentVolume) { v.Spec.VolumeAttributesClassName = ptr.To("a") }, "spec.csi: Required value: has to be specified when using volumeAttributesClassName"},
		"local, nowhere": {func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = nil }, "spec.nodeAffinity: Required value: Local volume requires node affinity"},
		"no constraint":  {func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity.Required = nil }, "spec.nodeAffinity.required: Required value: must specify required node constraints"},
		"no term":        {func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity.Required.NodeSelectorTerms = nil }, "spec.nodeAffinity.required.nodeSelectorTerms: Required value"},
		"no path":        {from(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{}}), "spec.local.path: Required value"},
		"upwards":        {from(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/a/../b"}}), `spec.local.path: Invalid value: "/a/../b": must not contain '..'`},
		"nothing":        {from(corev1.PersistentVolumeSource{}), "spec: Required value: must specify a volume type"},
		"two":            {func(v *corev1.PersistentVolume) { v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/a"} }, "spec.local: Forbidden: may not specify more than 1 volume type"},
		"a driver":       {from(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "example.com", VolumeHandle: "h"}}), ""},
		"no handle":      {from(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "example.com"}}), "spec.csi.volumeHandle: Required value"},
		"no server":      {from(corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Path: "/a"}}), "spec.nfs.server: Required value"},
		"recycled root": {func(v *corev1.PersistentVolume) {
			from(corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "//"}})(v)
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRecycle
		}, "spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'"},
		"mount options": {func(v *corev1.PersistentVolume) {
			v.Annotations = map[string]string{corev1.MountOptionAnnotation: "ro"}
		},
			"metadata.annotations.volume.beta.kubernetes.io/mount-options: Forbidden: may not specify mount options for this volume type"},
	} {
		expect(t, name, Validate(made(c.edit), nil), c.want)
	}
}

func TestVolumeStays(t *testing.T) {
	driver := func(secret bool) *corev1.PersistentVolume {
		s := &corev1.CSIPersistentVolumeSource{Driver: "example.com", VolumeHandle: "h"}
		if secret {
			s.ControllerExpandSecretRef = &corev1.SecretReference{Name: "s", Namespace: "ns"}
		}
		return made(from(corev1.PersistentVolumeSource{CSI: s}))
	}
	for name, c := range map[string]struct {
		now, old *corev1.PersistentVolume
		want     string
	}{
		"unchanged": {made(), made(), ""},
		"a claim":   {made(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = &corev1.ObjectReference{Name: "c"} }), made(), ""},
		"a policy": {made(func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		}), made(), ""},
		"another path":     {made(func(v *corev1.PersistentVolume) { v.Spec.Local.Path = "/b" }), made(), "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation"},
		"a secret to grow": {driver(true), driver(false), ""},
		"no secret":        {driver(false), driver(true), "spec.persistentvolumesource: Forbidden"},
		"a mode":           {made(func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) }), made(), `volumeMode: Invalid value: "Block": field is immutable`},
		"another node":     {made(func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = on("kubernetes.io/hostname", "b") }), made(), "nodeAffinity: Invalid value"},
		"a node at last":   {made(), made(func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = nil }), ""},
		"a label's new name": {made(func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = on(corev1.LabelTopologyZone, "a") }),
			made(func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = on(corev1.LabelFailureDomainBetaZone, "a") }), ""},
		"a label's new name, elsewhere": {made(func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = on(corev1.LabelTopologyZone, "b") }),
			made(func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = on(corev1.LabelFailureDomainBetaZone, "a") }), "nodeAffinity: Invalid value"},
	} {
		expect(t, name, validateStays(c.now, c.old), c.want)
	}
	odd := made(func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = on("kubernetes.io/hostname", "a b") })
	expect(t, "a label that was stored", Validate(odd, odd), "")
	expect(t, "a label that is new", Validate(odd, nil), `spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values[0]: Invalid value: "a b"`)
}

func TestTransitions(t *testing.T) {
	early, late := metav1.NewTime(time.Unix(1, 0)), metav1.NewTime(time.Unix(2, 0))
	status := func(phase corev1.PersistentVolumePhase, at *metav1.Time) *corev1.PersistentVolumeStatus {
		return &corev1.PersistentVolumeStatus{Phase: phase, LastPhaseTransitionTime: at}
	}
	for name, c := range map[string]struct {
		now, old *corev1.PersistentVolumeStatus
		want     string
	}{
		"the same":              {status("Bound", nil), status("Bound", &early), "early"},
		"another":               {status("Bound", nil), status("Available", &early), "now"},
		"another, time not":     {status("Bound", &early), status("Available", &early), "now"},
		"another, with time":    {status("Bound", &late), status("Available", &early), "late"},
		"the same, with a time": {status("Bound", &late), status("Bound", &early), "late"},
	} {
		noteTransition(c.now, c.old)
		got := "now"
		switch at := c.now.LastPhaseTransitionTime; {
		case at.Equal(&early):
			got = "early"
		case at.Equal(&late):
			got = "late"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func TestColumns(t *testing.T) {
	v := made(func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef, v.Status.Phase, v.Spec.StorageClassName = &corev1.ObjectReference{Namespace: "ns", Name: "c"}, corev1.VolumeBound, "fast"
		v.Spec.AccessModes = append(v.Spec.AccessModes, corev1.ReadOnlyMany)
	})
	out, err := volumeTable.ConvertToTable(t.Context(), v, nil)
	if err != nil || fmt.Sprint(out.Rows[0].Cells) != "[v 1Gi RWO,ROX Retain Bound ns/c fast <unset>  <unknown> Filesystem]" {
		t.Errorf("%v, %v", out, err)
	}
	if got := notMounted(&v.Spec); got != nil {
		t.Errorf("a local volume is warned of: %q", got)
	}
	old := made(from(corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{}}), func(v *corev1.PersistentVolume) {
		v.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "x"}
		v.Spec.NodeAffinity = on(corev1.LabelFailureDomainBetaZone, "a")
	})
	want := []string{
		`metadata.annotations[volume.beta.kubernetes.io/storage-class]: deprecated since v1.8; use "storageClassName" attribute instead`,
		`spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].key: failure-domain.beta.kubernetes.io/zone is deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
		"spec.rbd: deprecated in v1.28, non-functional in v1.31+",
	}
	if got := warningsOf(old); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the warnings are %q", got)
	}
}
