package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/everynode/everynode/api/v1alpha1"
	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/testenv"
)

func configMap(name, text string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {level: " + text + "}\n"
}

// TestPlanOfContentInAFile: ConfigMaps of a file are compared with what the cluster has, and with what nodes have.
func TestPlanOfContentInAFile(t *testing.T) {
	env := testenv.Start(t, testenv.SimulatedNodes(3))
	l, wrote := watched(t, env, "default")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	create := metav1.CreateOptions{}
	_, err := env.Client.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "content"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "everynode:content"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: "daemon-set-controller"}},
	}, create)
	must(err)
	for name, fixed := range map[string]bool{"conf": false, "fixed": true, "alone": false} {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"level": "info"}, Immutable: ptr.To(fixed)}
		_, err = env.Client.CoreV1().ConfigMaps("default").Create(t.Context(), o, create)
		must(err)
	}
	policy := &v1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "careful"}}
	must(yaml.UnmarshalStrict([]byte("selector: {matchLabels: {app: agent}}\nwaves: [{name: canary, count: 1}]\ncontent: {settle: 1s}"), &policy.Spec))
	_, err = l.own.RolloutPolicies("default").Create(t.Context(), policy, create)
	must(err)
	for name, reads := range map[string][]string{"agent": {"conf", "fixed"}, "plain": {"alone"}} {
		ds := newAgent("agent:1")
		ds.Name, ds.Labels = name, map[string]string{"app": name}
		for _, of := range reads {
			ds.Spec.Template.Spec.Volumes = append(ds.Spec.Template.Spec.Volumes, corev1.Volume{Name: of, VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: of}}}})
		}
		_, err = env.Client.AppsV1().DaemonSets("default").Create(t.Context(), ds, create)
		must(err)
	}
	env.Eventually("the first content is everywhere", func(ctx context.Context) error {
		r, err := l.own.DaemonSetRollouts("default").Get(ctx, "agent", metav1.GetOptions{})
		if err == nil && (r.Status.Phase != v1alpha1.PhaseComplete || content.IDOf(r.Status.StableRevision) == "") {
			err = fmt.Errorf("the status is %+v", r.Status)
		}
		return err
	})
	env.Eventually("all have pods", func(ctx context.Context) error {
		pods, err := env.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err == nil && len(pods.Items) != 6 {
			err = fmt.Errorf("there are %d pods", len(pods.Items))
		}
		return err
	})
	wrote.seen = nil
	named := strings.ReplaceAll(agentManifest, "IMAGE", "agent:1")
	named = strings.Replace(named, "spec: {containers", "spec: {volumes: [{name: more, configMap: {name: more}}], containers", 1)
	for name, c := range map[string]struct {
		file    string
		changes bool
		says    []string
		not     string
	}{
		"as it is": {configMap("conf", "info"), false, nil, "DaemonSet"},
		"another": {configMap("conf", "debug"), true, []string{"revision 1 -> 1, with other content",
			"ConfigMap conf, key level: info -> debug (replaces every pod)", "3 nodes: 3 change\n", "canary"}, "not known"},
		"newly named":    {named + "---\n" + configMap("more", "debug"), true, []string{"revision 1 -> new", "ConfigMap more, key level: (none) -> debug (replaces every pod)"}, ""},
		"immutable":      {configMap("fixed", "debug"), false, []string{"(the server would refuse ConfigMap fixed, which is immutable: what it holds stays as it is)"}, "DaemonSet"},
		"read directly":  {configMap("alone", "debug"), true, []string{"reaches all nodes at once"}, ""},
		"read by nobody": {configMap("nobody", "debug"), false, nil, "DaemonSet"},
		"too long":       {configMap("conf", strings.Repeat("x", content.MaxBytes)), true, []string{"Warning: nothing begins: ConfigMap conf has 1048581 bytes"}, ""},
	} {
		m, err := parseManifests(strings.NewReader(c.file))
		must(err)
		p, err := l.plan(t.Context(), m)
		must(err)
		var out bytes.Buffer
		err = p.show(&out, "")
		text := strings.ReplaceAll(out.String(), "\n      ", " ")
		text = strings.ReplaceAll(text, "\n    ", " ")
		if errors.Is(err, changesFound) != c.changes {
			t.Errorf("%s: the exit code is %v:\n%s", name, err, text)
		}
		for _, want := range c.says {
			if !strings.Contains(text, want) {
				t.Errorf("%s: it says\n%s\nwithout %q", name, text, want)
			}
		}
		if c.not != "" && strings.Contains(text, c.not) {
			t.Errorf("%s: it says\n%s", name, text)
		}
	}
	if len(wrote.seen) > 0 {
		t.Errorf("planning wrote %v", wrote.seen)
	}
}
