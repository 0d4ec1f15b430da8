package daemonset

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// agent returns a valid DaemonSet, defaulted and changed by the edits.
func agent(edits ...func(*appsv1.DaemonSet)) *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "agent", Namespace: "default"},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "agent:v1"}}},
			},
		},
	}
	for _, edit := range edits {
		edit(d)
	}
	SetDefaults(d)
	return d
}

func rolling(unavailable, surge string) func(*appsv1.DaemonSet) {
	parse := func(s string) *intstr.IntOrString {
		if s == "" {
			return nil
		}
		return ptr.To(intstr.Parse(s))
	}
	return func(d *appsv1.DaemonSet) {
		d.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateDaemonSet{MaxUnavailable: parse(unavailable), MaxSurge: parse(surge)}
	}
}

func TestDefaults(t *testing.T) {
	d := agent()
	u := d.Spec.UpdateStrategy
	if u.Type != appsv1.RollingUpdateDaemonSetStrategyType || u.RollingUpdate.MaxUnavailable.String() != "1" || u.RollingUpdate.MaxSurge.String() != "0" {
		t.Errorf("update strategy is %v of %v/%v, want RollingUpdate of 1/0", u.Type, u.RollingUpdate.MaxUnavailable, u.RollingUpdate.MaxSurge)
	}
	if *d.Spec.RevisionHistoryLimit != 10 {
		t.Errorf("revisionHistoryLimit is %d, want 10", *d.Spec.RevisionHistoryLimit)
	}
	onDelete := agent(func(d *appsv1.DaemonSet) { d.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType })
	if onDelete.Spec.UpdateStrategy.RollingUpdate != nil {
		t.Error("OnDelete got a rolling update")
	}
}

func TestValidate(t *testing.T) {
	const percent = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
	for name, c := range map[string]struct {
		edit func(*appsv1.DaemonSet)
		want []string
	}{
		"valid": {func(*appsv1.DaemonSet) {}, nil},
		"no selector": {func(d *appsv1.DaemonSet) { d.Spec.Selector = nil },
			[]string{"spec.template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`"}},
		"empty selector": {func(d *appsv1.DaemonSet) { d.Spec.Selector = &metav1.LabelSelector{} },
			[]string{"spec.selector: Invalid value: {}: empty selector is invalid for daemonset"}},
		"restartPolicy": {func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyOnFailure },
			[]string{`spec.template.spec.restartPolicy: Unsupported value: "OnFailure": supported values: "Always"`}},
		"deadline": {func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.ActiveDeadlineSeconds = ptr.To[int64](5) },
			[]string{"spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in DaemonSet is not Supported"}},
		"only surge given": {rolling("", "1"),
			[]string{"spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"}},
		"both as percent": {rolling("10%", "20%"),
			[]string{`spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: "20%": may not be set when maxUnavailable is non-zero`}},
		"neither, one as percent": {rolling("0%", "0"),
			[]string{"spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"}},
		"surge alone":     {rolling("0", "1"), nil},
		"too much":        {rolling("101%", "0"), []string{`spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%`}},
		"many, but whole": {rolling("500", "0"), nil},
		"text": {rolling("abc", "0"), []string{
			`spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "abc": ` + percent,
			"spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"}},
		"unknown strategy": {func(d *appsv1.DaemonSet) { d.Spec.UpdateStrategy.Type = "Recreate" },
			[]string{`spec.updateStrategy: Unsupported value: {"Type":"Recreate","RollingUpdate":null}: supported values: "RollingUpdate", "OnDelete"`}},
		"OnDelete ignores the rolling update": {func(d *appsv1.DaemonSet) {
			rolling("abc", "abc")(d)
			d.Spec.UpdateStrategy.Type = appsv1.OnDeleteDaemonSetStrategyType
		}, nil},
		"host port twice": {func(d *appsv1.DaemonSet) {
			d.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 1, HostPort: 8080}, {ContainerPort: 2, HostPort: 8080}}
		}, []string{`spec.template.spec.containers[0].ports[1].hostPort: Duplicate value: "TCP//8080"`}},
		"another host port in the node's network": {func(d *appsv1.DaemonSet) {
			d.Spec.Template.Spec.HostNetwork = true
			d.Spec.Template.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: 81}, {ContainerPort: 90}}
		}, []string{"spec.template.spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true"}},
		"ephemeral containers": {func(d *appsv1.DaemonSet) {
			d.Spec.Template.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "i"}}}
		}, []string{"spec.template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, err := range Validate(agent(c.edit)) {
				got = append(got, err.Error())
			}
			if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

func TestSelectorStays(t *testing.T) {
	changed := agent(func(d *appsv1.DaemonSet) {
		d.Spec.Selector.MatchLabels = map[string]string{"app": "b"}
		d.Spec.Template.Labels = map[string]string{"app": "b"}
	})
	errs := ValidateUpdate(changed, agent())
	const want = `spec.selector: Invalid value: {"matchLabels":{"app":"b"}}: field is immutable`
	if len(errs) != 1 || errs[0].Error() != want {
		t.Errorf("got %v, want %s", errs, want)
	}
}

// The template's generation rises with the template only, and users cannot set it.
func TestTemplateGeneration(t *testing.T) {
	ctx := context.Background()
	d := agent()
	prepareForCreate(ctx, d)
	expect := func(d *appsv1.DaemonSet, want, when string) {
		t.Helper()
		if got := d.Annotations[appsv1.DeprecatedTemplateGeneration]; got != want {
			t.Errorf("template generation is %q %s, want %q", got, when, want)
		}
	}
	expect(d, "1", "at first")

	template := agent(func(d *appsv1.DaemonSet) { d.Spec.Template.Spec.Containers[0].Image = "agent:v2" })
	prepareForUpdate(ctx, template, d)
	expect(template, "2", "after a change of the template")

	spec := template.DeepCopy()
	spec.Spec.MinReadySeconds = 5
	spec.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "77"}
	prepareForUpdate(ctx, spec, template)
	expect(spec, "2", "after a change of something else")

	status := spec.DeepCopy()
	status.Annotations = map[string]string{"note": "n"}
	prepareStatusForUpdate(ctx, status, spec)
	expect(status, "2", "after a status update that lacks it")

	given := agent(func(d *appsv1.DaemonSet) { d.Annotations = map[string]string{appsv1.DeprecatedTemplateGeneration: "5"} })
	prepareForCreate(ctx, given)
	expect(given, "5", "when the creator gives it")
}

func TestCollisionCountOnlyGrows(t *testing.T) {
	errs := ValidateStatusUpdate(&appsv1.DaemonSetStatus{CollisionCount: ptr.To[int32](1), NumberReady: -1}, &appsv1.DaemonSetStatus{CollisionCount: ptr.To[int32](2)})
	want := []string{"status.numberReady: Invalid value: -1: must be greater than or equal to 0", "status.collisionCount: Invalid value: 1: cannot be decremented"}
	if len(errs) != 2 || errs[0].Error() != want[0] || errs[1].Error() != want[1] {
		t.Errorf("got %v, want %v", errs, want)
	}
}

func TestRow(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	d := agent(func(d *appsv1.DaemonSet) {
		d.CreationTimestamp = metav1.NewTime(now.Add(-90 * time.Second))
		d.Spec.Template.Spec.NodeSelector = map[string]string{"b": "2", "a": "1"}
		d.Status = appsv1.DaemonSetStatus{DesiredNumberScheduled: 5, CurrentNumberScheduled: 4, NumberReady: 3, UpdatedNumberScheduled: 2, NumberAvailable: 1}
	})
	want := []any{"agent", int64(5), int64(4), int64(3), int64(2), int64(1), "a=1,b=2", "90s", "main", "agent:v1", "app=a"}
	got := row(d, now)
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("cell %d is %v, want %v", i, got[i], want[i])
		}
	}
}
