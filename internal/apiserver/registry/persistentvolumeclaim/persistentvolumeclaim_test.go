package persistentvolumeclaim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/everynode/everynode/internal/apiserver/podspec"
)

// expect fails unless there is exactly the one error, or none for an empty text.
func expect(t *testing.T, what string, errs field.ErrorList, want string) {
	t.Helper()
	if want == "" && len(errs) > 0 || want != "" && (len(errs) != 1 || !strings.HasPrefix(errs[0].Error(), want)) {
		t.Errorf("%s: %v, want %s", what, errs, want)
	}
}

func storage(amount string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(amount)}
}

func made(edits ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	c.Spec.Resources.Requests = storage("2Gi")
	SetDefaults(c)
	for _, edit := range edits {
		edit(c)
	}
	return c
}

func bound(c *corev1.PersistentVolumeClaim) {
	c.Spec.VolumeName, c.Status.Phase, c.Status.Capacity = "v", corev1.ClaimBound, storage("2Gi")
	c.Status.AccessModes = c.Spec.AccessModes
}

func source(group, kind string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSource = &corev1.TypedLocalObjectReference{Kind: kind, Name: "s"}
		if group != "" {
			c.Spec.DataSource.APIGroup = &group
		}
	}
}

func TestClaim(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*corev1.PersistentVolumeClaim)
		want string
	}{
		"good":     {func(*corev1.PersistentVolumeClaim) {}, ""},
		"no modes": {func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes = nil }, "spec.accessModes: Required value: at least 1 access mode is required"},
		"a mode":   {func(c *corev1.PersistentVolumeClaim) { c.Spec.AccessModes[0] = "Ever" }, `spec.accessModes: Unsupported value: "Ever"`},
		"for one pod": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = append(c.Spec.AccessModes, corev1.ReadWriteOncePod)
		}, "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes"},
		"no size":  {func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = nil }, "spec.resources[storage]: Required value"},
		"nothing":  {func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = storage("0") }, `spec.resources[storage]: Invalid value: "0": must be greater than zero`},
		"a class":  {func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("A") }, `spec.storageClassName: Invalid value: "A"`},
		"no class": {func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("") }, ""},
		"a volume mode": {func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeMode("Tape")) },
			`spec.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"`},
		"a selector": {func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}
		}, `spec.selector.matchLabels: Invalid value: "a b"`},
		"a copy":          {source("", "PersistentVolumeClaim"), ""},
		"a copy of a pod": {source("", "Pod"), `spec.dataSource: Invalid value: "Pod": must be 'PersistentVolumeClaim' when referencing the default apiGroup`},
		"two sources": {func(c *corev1.PersistentVolumeClaim) {
			source("", "PersistentVolumeClaim")(c)
			c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "other"}
		}, "spec: Invalid value: \"dataSource\": must match dataSourceRef"},
	} {
		errs := podspec.ValidateClaim(&made(c.edit).Spec, nil, field.NewPath("spec"))
		if name == "two sources" { // the value is a path, which prints as a structure
			if len(errs) != 1 || errs[0].Detail != "must match dataSourceRef" {
				t.Errorf("%s: %v", name, errs)
			}
			continue
		}
		expect(t, name, errs, c.want)
	}
}

func TestClaimStays(t *testing.T) {
	const immutable = "spec: Forbidden: spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
	annotated := func(name string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: name}
		}
	}
	class := func(name string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &name }
	}
	size := func(amount string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = storage(amount) }
	}
	for name, c := range map[string]struct {
		now, old *corev1.PersistentVolumeClaim
		want     string
	}{
		"unchanged":           {made(), made(), ""},
		"its volume":          {made(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "v" }), made(), ""},
		"another volume":      {made(bound, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "w" }), made(bound), immutable},
		"a class at last":     {made(class("a")), made(), ""},
		"another class":       {made(class("a")), made(class("b")), immutable},
		"from old to new":     {made(annotated("a"), class("a")), made(annotated("a")), ""},
		"from old to other":   {made(annotated("a"), class("b")), made(annotated("a")), immutable},
		"the old annotation":  {made(annotated("b")), made(annotated("a")), `metadata.annotations[volume.beta.kubernetes.io/storage-class]: Invalid value: "b": field is immutable`},
		"larger":              {made(bound, size("3Gi")), made(bound), ""},
		"larger, not bound":   {made(size("3Gi")), made(), immutable},
		"smaller":             {made(bound, size("1Gi")), made(bound), "spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"},
		"a growth taken back": {made(bound, size("3Gi")), made(bound, size("4Gi")), ""},
		"other modes": {made(bound, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany}
		}), made(bound), immutable},
		"attributes": {made(bound, func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = ptr.To("fast") }), made(bound), ""},
		"no attributes": {made(bound), made(bound, func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName = ptr.To("fast"), ptr.To("fast")
		}), "spec.volumeAttributesClassName: Forbidden: update to nil is forbidden when status.currentVolumeAttributesClassName is not nil"},
	} {
		expect(t, name, ValidateUpdate(c.now, c.old), c.want)
	}
}

func TestSources(t *testing.T) {
	for name, c := range map[string]struct {
		edit func(*corev1.PersistentVolumeClaim)
		want bool
	}{
		"a claim":    {source("", "PersistentVolumeClaim"), true},
		"a snapshot": {source("snapshot.storage.k8s.io", "VolumeSnapshot"), true},
		"a backup":   {source("example.com", "Backup"), false},
	} {
		claim := made(c.edit)
		keepKnownSource(&claim.Spec, nil)
		completeSources(&claim.Spec)
		if got := claim.Spec.DataSource != nil && claim.Spec.DataSourceRef != nil; got != c.want {
			t.Errorf("%s: %+v, %+v", name, claim.Spec.DataSource, claim.Spec.DataSourceRef)
		}
	}
	claim := made(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To("example.com"), Kind: "Backup", Name: "b"}
	})
	keepKnownSource(&claim.Spec, nil)
	completeSources(&claim.Spec)
	if d := claim.Spec.DataSource; d == nil || d.Kind != "Backup" || *d.APIGroup != "example.com" {
		t.Errorf("the old field is %+v", d)
	}
}

// What is in another namespace is not taken from there because somebody here asks for it.
func TestASourceInAnotherNamespaceIsDropped(t *testing.T) {
	far := func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "theirs", Namespace: ptr.To("other")}
	}
	for name, c := range map[string]struct {
		old  *corev1.PersistentVolumeClaimSpec
		want bool
	}{"new": {nil, false}, "added": {&made().Spec, false}, "stored": {&made(far).Spec, true}} {
		claim := made(far)
		dropFarSource(&claim.Spec, c.old)
		if got := claim.Spec.DataSourceRef != nil; got != c.want {
			t.Errorf("%s: the source is %+v", name, claim.Spec.DataSourceRef)
		}
	}
	near := made(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "ours", Namespace: ptr.To("")}
	})
	dropFarSource(&near.Spec, nil)
	if near.Spec.DataSourceRef == nil {
		t.Error("one in the same namespace is dropped")
	}
}

func TestStatusAndColumns(t *testing.T) {
	wrong := made(bound)
	wrong.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{"storage": "Maybe"}
	expect(t, "a state", ValidateStatus(wrong), `status.allocatedResourceStatuses: Unsupported value: "storage"`)
	wrong.Status.AllocatedResourceStatuses = nil
	wrong.Status.AllocatedResources = corev1.ResourceList{"cpu": resource.MustParse("1")}
	expect(t, "an amount", ValidateStatus(wrong), `status.allocatedResources: Unsupported value: "cpu": supported values: "storage"`)
	expect(t, "good", ValidateStatus(made(bound)), "")
	out, err := claimTable.ConvertToTable(t.Context(), &corev1.PersistentVolumeClaimList{Items: []corev1.PersistentVolumeClaim{*made(bound), *made()}}, nil)
	if err != nil || fmt.Sprint(out.Rows[0].Cells, out.Rows[1].Cells) != "[c Bound v 2Gi RWO  <unset> <unknown> Filesystem] [c Pending     <unset> <unknown> Filesystem]" {
		t.Errorf("%v, %v", out, err)
	}
	odd := made(func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = storage("100m") })
	if got := warningsOf(odd); len(got) != 1 || got[0] != `spec.resources.requests[storage]: fractional byte value "100m" is invalid, must be an integer` {
		t.Errorf("the warnings are %q", got)
	}
}

// Who asks for more, or for a device, is told with the answer what becomes of it.
func TestWarnings(t *testing.T) {
	size := func(amount string) *corev1.PersistentVolumeClaim {
		return made(bound, func(c *corev1.PersistentVolumeClaim) { c.Spec.Resources.Requests = storage(amount) })
	}
	const grows = "spec.resources.requests.storage: nothing here makes volumes grow; this one stays as large as it is, unless a program of its storage driver does it"
	for name, c := range map[string]struct {
		now, old *corev1.PersistentVolumeClaim
		want     []string
	}{
		"nothing new": {size("2Gi"), size("2Gi"), nil},
		"more":        {size("3Gi"), size("2Gi"), []string{grows}},
		"less":        {size("2Gi"), size("3Gi"), nil},
	} {
		if got := growthWarnings(c.now, c.old); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	device := made(func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) })
	if got := warningsOf(device); len(got) != 1 || !strings.HasPrefix(got[0], "spec.volumeMode: nodes give pods no block devices") {
		t.Errorf("a device: %q", got)
	}
}
