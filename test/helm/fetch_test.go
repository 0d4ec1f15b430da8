package helm

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// TestFetchOfTheChart: whoever asks for it has pods fetch images, of the chart's own image; beside another controller
// they are given one right more, and nothing of that else.
func TestFetchOfTheChart(t *testing.T) {
	r := &release{cluster: &cluster{t: t}, t: t, program: Program(t, "v4"), home: t.TempDir()}
	for _, mode := range []string{"Beside", "Instead"} {
		for _, on := range []string{"false", "true"} {
			all := render(t, r, "--set", "image.repository=example.com/everynode,image.tag=v7,mode="+mode+",fetch.enabled="+on)
			d := one[appsv1.Deployment](t, all, "Deployment")
			argumentsAreKnown(t, d)
			args := d.Spec.Template.Spec.Containers[0].Args
			if got := slices.Contains(args, "--fetch-image=example.com/everynode:v7"); got != (on == "true") {
				t.Errorf("%s, fetch %s: the arguments are %q", mode, on, args)
			}
			var makes []rbacv1.PolicyRule
			for _, text := range all["ClusterRole"] {
				for _, rule := range one[rbacv1.ClusterRole](t, rendered{"ClusterRole": {text}}, "ClusterRole").Rules {
					if slices.Contains(rule.Resources, "pods") && slices.Contains(rule.Verbs, "create") {
						makes = append(makes, rule)
					}
				}
			}
			if got := len(makes) > 0; got != (mode == "Instead" || on == "true") || len(makes) > 1 {
				t.Errorf("%s, fetch %s: pods may be made by %v", mode, on, makes)
			}
			if got, want := len(all["ClusterRoleBinding"]), len(all["ClusterRole"]); got != want {
				t.Errorf("%s, fetch %s: %d roles and %d bindings", mode, on, want, got)
			}
		}
	}
}
