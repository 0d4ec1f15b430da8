package pod

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func debugger(name string, edits ...func(*corev1.EphemeralContainer)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		c := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "i:2"}}
		for _, edit := range edits {
			edit(&c)
		}
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, c)
	}
}

func TestEphemeralContainers(t *testing.T) {
	part := EphemeralContainers()
	sidecar := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "i:1"}}
		p.Spec.Volumes = []corev1.Volume{{Name: "v"}}
	}
	target := func(name string) func(*corev1.EphemeralContainer) {
		return func(c *corev1.EphemeralContainer) { c.TargetContainerName = name }
	}
	set := func(change func(*corev1.EphemeralContainerCommon)) func(*corev1.EphemeralContainer) {
		return func(c *corev1.EphemeralContainer) { change(&c.EphemeralContainerCommon) }
	}
	for name, c := range map[string]struct {
		old, now func(*corev1.Pod)
		want     string
	}{
		"first":               {sidecar, debugger("d"), ""},
		"another":             {debugger("d"), debugger("e"), ""},
		"with a target":       {sidecar, debugger("d", target("main")), ""},
		"an init container's": {sidecar, debugger("d", target("first")), ""},
		"no such target":      {sidecar, debugger("d", target("other")), `spec.ephemeralContainers[0].targetContainerName: Not found: "other"`},
		"itself":              {sidecar, debugger("d", target("d")), `spec.ephemeralContainers[0].targetContainerName: Not found: "d"`},
		"a taken name":        {sidecar, debugger("main"), `spec.ephemeralContainers[0].name: Duplicate value: "main"`},
		"taken by another":    {debugger("d"), debugger("d"), `spec.ephemeralContainers[1].name: Duplicate value: "d"`},
		"no image":            {sidecar, debugger("d", func(c *corev1.EphemeralContainer) { c.Image = "" }), "spec.ephemeralContainers[0].image: Required value"},
		"a blank image":       {sidecar, debugger("d", func(c *corev1.EphemeralContainer) { c.Image = " i" }), "must not have leading or trailing whitespace"},
		"taken away":          {debugger("d"), func(p *corev1.Pod) { p.Spec.EphemeralContainers = nil }, `existing ephemeral containers "d" may not be removed`},
		"changed":             {debugger("d"), func(p *corev1.Pod) { p.Spec.EphemeralContainers[0].Image = "i:3" }, `existing ephemeral containers "d" may not be changed`},
		"ports": {sidecar, debugger("d", set(func(c *corev1.EphemeralContainerCommon) { c.Ports = []corev1.ContainerPort{{ContainerPort: 80}} })),
			"spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container"},
		"resources": {sidecar, debugger("d", set(func(c *corev1.EphemeralContainerCommon) {
			c.Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		})), "spec.ephemeralContainers[0].resources: Forbidden: cannot be set for an Ephemeral Container"},
		"a probe": {sidecar, debugger("d", set(func(c *corev1.EphemeralContainerCommon) { c.LivenessProbe = &corev1.Probe{} })),
			"spec.ephemeralContainers[0].livenessProbe: Forbidden: cannot be set for an Ephemeral Container"},
		"part of a volume": {sidecar, debugger("d", set(func(c *corev1.EphemeralContainerCommon) {
			c.VolumeMounts = []corev1.VolumeMount{{Name: "v", MountPath: "/v", SubPath: "x"}}
		})), "spec.ephemeralContainers[0].volumeMounts[0].subPath: Forbidden: cannot be set for an Ephemeral Container"},
		"a static pod": {func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }, debugger("d"),
			"static pods do not support ephemeral containers"},
	} {
		old := stored(c.old)
		p := old.DeepCopy()
		c.now(p)
		SetDefaults(p)
		part.Keep(p, old)
		errs := part.Validate(p, old)
		if (len(errs) == 0) != (c.want == "") || c.want != "" && !strings.Contains(errs.ToAggregate().Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, errs, c.want)
		}
	}
}

// What the subresource is not about stays, whatever is sent.
func TestEphemeralContainersAlone(t *testing.T) {
	old := stored()
	p := old.DeepCopy()
	debugger("d")(p)
	p.Spec.Containers[0].Image, p.Spec.NodeName, p.Spec.HostPID = "evil", "other", true
	EphemeralContainers().Keep(p, old)
	if p.Spec.Containers[0].Image != "i:1" || p.Spec.NodeName != "n1" || p.Spec.HostPID || len(p.Spec.EphemeralContainers) != 1 {
		t.Errorf("the specification is %+v", p.Spec)
	}
	if errs := ValidateUpdate(p, old); len(errs) == 0 {
		t.Error("an update of the pod itself added a container")
	}
}
