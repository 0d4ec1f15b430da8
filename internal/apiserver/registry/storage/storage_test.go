package storage

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
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

func class(edits ...func(*storagev1.StorageClass)) *storagev1.StorageClass {
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Provisioner: "example.com/Disks", Parameters: map[string]string{"type": "fast"}}
	storageClass().Default(c)
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func topology(key string, values ...string) corev1.TopologySelectorTerm {
	return corev1.TopologySelectorTerm{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: key, Values: values}}}
}

func TestStorageClass(t *testing.T) {
	if c := class(); *c.ReclaimPolicy != corev1.PersistentVolumeReclaimDelete || *c.VolumeBindingMode != storagev1.VolumeBindingImmediate {
		t.Errorf("the defaults are %s and %s", *c.ReclaimPolicy, *c.VolumeBindingMode)
	}
	many := map[string]string{}
	for i := range 513 {
		many[fmt.Sprint(i)] = ""
	}
	for name, c := range map[string]struct {
		class *storagev1.StorageClass
		want  string
	}{
		"good":           {class(), ""},
		"no provisioner": {class(func(c *storagev1.StorageClass) { c.Provisioner = "" }), "provisioner: Required value"},
		"a provisioner":  {class(func(c *storagev1.StorageClass) { c.Provisioner = "a b" }), `provisioner: Invalid value: "a b": name part must consist of`},
		"no key":         {class(func(c *storagev1.StorageClass) { c.Parameters[""] = "x" }), `parameters: Invalid value: "": field can not be empty.`},
		"too many":       {class(func(c *storagev1.StorageClass) { c.Parameters = many }), "parameters: Too long"},
		"too much":       {class(func(c *storagev1.StorageClass) { c.Parameters["x"] = strings.Repeat("x", 256<<10) }), "parameters: Too long"},
		"a policy":       {class(func(c *storagev1.StorageClass) { c.ReclaimPolicy = ptr.To(corev1.PersistentVolumeReclaimRecycle) }), `reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"`},
		"no mode":        {class(func(c *storagev1.StorageClass) { c.VolumeBindingMode = nil }), "volumeBindingMode: Required value"},
		"a mode":         {class(func(c *storagev1.StorageClass) { c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingMode("Later")) }), `volumeBindingMode: Unsupported value: "Later": supported values: "Immediate", "WaitForFirstConsumer"`},
		"topologies": {class(func(c *storagev1.StorageClass) {
			c.AllowedTopologies = []corev1.TopologySelectorTerm{topology("a", "b")}
		}), ""},
		"no values": {class(func(c *storagev1.StorageClass) { c.AllowedTopologies = []corev1.TopologySelectorTerm{topology("a")} }), "allowedTopologies[0].matchLabelExpressions[0].values: Required value"},
		"a value twice": {class(func(c *storagev1.StorageClass) {
			c.AllowedTopologies = []corev1.TopologySelectorTerm{topology("a", "b", "b")}
		}), `allowedTopologies[0].matchLabelExpressions[0].values[1]: Duplicate value: "b"`},
		"a term twice": {class(func(c *storagev1.StorageClass) {
			c.AllowedTopologies = []corev1.TopologySelectorTerm{topology("a", "b"), topology("a", "b")}
		}), `allowedTopologies[1].matchLabelExpressions: Duplicate value: ""`},
	} {
		expect(t, name, ValidateClass(c.class), c.want)
	}
	for name, c := range map[string]struct {
		edit func(*storagev1.StorageClass)
		want string
	}{
		"its labels":      {func(c *storagev1.StorageClass) { c.Labels = map[string]string{"a": "b"} }, ""},
		"growth":          {func(c *storagev1.StorageClass) { c.AllowVolumeExpansion = ptr.To(true) }, ""},
		"its parameters":  {func(c *storagev1.StorageClass) { c.Parameters = nil }, "parameters: Invalid value: null: field is immutable"},
		"its provisioner": {func(c *storagev1.StorageClass) { c.Provisioner = "x" }, `provisioner: Invalid value: "x": field is immutable`},
		"its policy":      {func(c *storagev1.StorageClass) { c.ReclaimPolicy = ptr.To(corev1.PersistentVolumeReclaimRetain) }, `reclaimPolicy: Invalid value: "Retain": field is immutable`},
		"its mode": {func(c *storagev1.StorageClass) {
			c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
		}, `volumeBindingMode: Invalid value: "WaitForFirstConsumer": field is immutable`},
	} {
		expect(t, "a change of "+name, validateClassStays(class(c.edit), class()), c.want)
	}
	old := class(func(c *storagev1.StorageClass) {
		c.AllowedTopologies = []corev1.TopologySelectorTerm{topology(corev1.LabelFailureDomainBetaZone, "b")}
	})
	if got := classWarnings(old); len(got) != 1 || !strings.HasPrefix(got[0], "allowedTopologies[0].matchLabelExpressions[0].key: deprecated since v1.17") {
		t.Errorf("the warnings are %q", got)
	}
	marked := class(func(c *storagev1.StorageClass) {
		c.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	})
	out, err := classTable.ConvertToTable(t.Context(), marked, nil)
	if err != nil || fmt.Sprint(out.Rows[0].Cells) != "[c (default) example.com/Disks Delete Immediate false <unknown>]" {
		t.Errorf("%v, %v", out, err)
	}
}

func TestVolumeAttributesClass(t *testing.T) {
	good := func() *storagev1.VolumeAttributesClass {
		return &storagev1.VolumeAttributesClass{DriverName: "example.com", Parameters: map[string]string{"iops": "1"}}
	}
	expect(t, "good", ValidateAttributes(good()), "")
	none := good()
	none.Parameters = nil
	expect(t, "no parameters", ValidateAttributes(none), "parameters: Required value: must contain at least one key/value pair")
	nobody := good()
	nobody.DriverName = ""
	expect(t, "no driver", ValidateAttributes(nobody), "driverName: Required value")
}

func TestCapacity(t *testing.T) {
	made := func(edit func(*storagev1.CSIStorageCapacity)) *storagev1.CSIStorageCapacity {
		c := &storagev1.CSIStorageCapacity{StorageClassName: "fast", Capacity: ptr.To(resource.MustParse("1Gi")),
			NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "a"}}}
		edit(c)
		return c
	}
	keep := func(*storagev1.CSIStorageCapacity) {}
	for name, c := range map[string]struct {
		edit func(*storagev1.CSIStorageCapacity)
		want string
	}{
		"good":     {keep, ""},
		"nothing":  {func(c *storagev1.CSIStorageCapacity) { c.Capacity = nil }, ""},
		"negative": {func(c *storagev1.CSIStorageCapacity) { c.Capacity = ptr.To(resource.MustParse("-1")) }, `capacity: Invalid value: "-1": must be greater than or equal to 0`},
		"a class":  {func(c *storagev1.CSIStorageCapacity) { c.StorageClassName = "A" }, `storageClassName: Invalid value: "A": a lowercase RFC 1123 subdomain`},
		"a label":  {func(c *storagev1.CSIStorageCapacity) { c.NodeTopology.MatchLabels["zone"] = "a b" }, `nodeTopology.matchLabels: Invalid value: "a b"`},
	} {
		expect(t, name, ValidateCapacity(made(c.edit), nil), c.want)
	}
	expect(t, "more", ValidateCapacity(made(func(c *storagev1.CSIStorageCapacity) { c.Capacity = ptr.To(resource.MustParse("2Gi")) }), made(keep)), "")
	expect(t, "another class", ValidateCapacity(made(func(c *storagev1.CSIStorageCapacity) { c.StorageClassName = "slow" }), made(keep)), `storageClassName: Invalid value: "slow": field is immutable`)
	expect(t, "elsewhere", ValidateCapacity(made(func(c *storagev1.CSIStorageCapacity) { c.NodeTopology = nil }), made(keep)), "nodeTopology: Invalid value: null: field is immutable")
	broken := made(func(c *storagev1.CSIStorageCapacity) {
		c.NodeTopology = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "zone", Operator: "In", Values: []string{"a b"}}}}
	})
	expect(t, "a new one like that", ValidateCapacity(broken, nil), `nodeTopology.matchExpressions[0].values[0]: Invalid value: "a b"`)
	expect(t, "stored so", ValidateCapacity(broken, broken), "")
}

func TestAttachment(t *testing.T) {
	made := func(edit func(*storagev1.VolumeAttachment)) *storagev1.VolumeAttachment {
		a := &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{Attacher: "example.com", NodeName: "n", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: ptr.To("v")}}}
		edit(a)
		return a
	}
	inline := func(edit func(*corev1.PersistentVolumeSpec)) func(*storagev1.VolumeAttachment) {
		return func(a *storagev1.VolumeAttachment) {
			s := &corev1.PersistentVolumeSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}}
			s.CSI = &corev1.CSIPersistentVolumeSource{Driver: "example.com", VolumeHandle: "h"}
			edit(s)
			a.Spec.Source = storagev1.VolumeAttachmentSource{InlineVolumeSpec: s}
		}
	}
	long := strings.Repeat("x", 1025)
	for name, c := range map[string]struct {
		edit func(*storagev1.VolumeAttachment)
		want string
	}{
		"good":        {func(*storagev1.VolumeAttachment) {}, ""},
		"no attacher": {func(a *storagev1.VolumeAttachment) { a.Spec.Attacher = "" }, "spec.attacher: Required value"},
		"no node":     {func(a *storagev1.VolumeAttachment) { a.Spec.NodeName = "" }, "spec.nodeName: Invalid value"},
		"no volume":   {func(a *storagev1.VolumeAttachment) { a.Spec.Source.PersistentVolumeName = nil }, "spec.source: Required value: must specify exactly one of inlineVolumeSpec and persistentVolumeName"},
		"an inline":   {inline(func(*corev1.PersistentVolumeSpec) {}), ""},
		"its capacity": {inline(func(s *corev1.PersistentVolumeSpec) {
			s.Capacity = corev1.ResourceList{"storage": resource.MustParse("1")}
		}), "spec.source.inlineVolumeSpec.capacity: Forbidden: may not be specified in the context of inline volumes"},
		"its policy": {inline(func(s *corev1.PersistentVolumeSpec) {
			s.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
		}),
			"spec.source.inlineVolumeSpec.persistentVolumeReclaimPolicy: Forbidden: may only be Retain in the context of inline volumes"},
		"both":         {func(a *storagev1.VolumeAttachment) { a.Spec.Source.InlineVolumeSpec = &corev1.PersistentVolumeSpec{} }, "spec.source: Forbidden: must specify exactly one"},
		"a long error": {func(a *storagev1.VolumeAttachment) { a.Status.AttachError = &storagev1.VolumeError{Message: long} }, "status.attachError.message: Too long"},
		"a code": {func(a *storagev1.VolumeAttachment) {
			a.Status.DetachError = &storagev1.VolumeError{ErrorCode: ptr.To[int32](-1)}
		}, "status.detachError.errorCode: Invalid value: -1: must be between 0 and 2147483647, inclusive"},
		"much told": {func(a *storagev1.VolumeAttachment) {
			a.Status.AttachmentMetadata = map[string]string{"a": strings.Repeat("x", 256<<10)}
		}, "status.attachmentMetadata: Too long"},
	} {
		expect(t, name, ValidateAttachment(made(c.edit)), c.want)
	}
}
