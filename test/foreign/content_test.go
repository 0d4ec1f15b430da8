package foreign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/content"
	"github.com/everynode/everynode/internal/testenv/secrecy"
)

// withContent is byZone, with all that the daemon reads. A canary that reads what is bad is ready for a moment.
var withContent = strings.Replace(byZone, "count: 1}", "count: 1, soak: 5s}", 1) + `  content: {configMaps: Referenced, secrets: Referenced, settle: 1s}
`

// reader is an agent that reads a ConfigMap in two ways, and a Secret.
var reader = strings.TrimSuffix(agent, "}\n") + `, envFrom: [{configMapRef: {name: settings}}],
         env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: token, key: token}}}],
         volumeMounts: [{name: settings, mountPath: /etc/agent}]}
      volumes:
      - {name: settings, configMap: {name: settings}}
`

// settings is the ConfigMap with a level.
func settings(level string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: default}\ndata: {level: " + level + "}\n"
}

// TestContentBesideKubernetes has configuration travel like code where kube-controller-manager makes the pods.
func TestContentBesideKubernetes(t *testing.T) {
	b := &beside{cluster: start(t, nodes)}
	b.front = newFront(t)
	b.prepares(t)
	b.begins(t)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"content is turned on", b.turnsOn},
		{"a bad key stays at the canary", b.badKey},
		{"a good one goes everywhere", b.goodKey},
		{"a pod that is made while nobody answers is replaced", b.unanswered},
		{"a new DaemonSet has its content from the first pod", b.newReader},
		{"nobody can make what is missing", b.missing},
		{"nobody is shown a Secret's value", b.hidesToken},
		{"whoever leaves keeps the copies", b.leavesCopies},
	} {
		if !t.Run(step.name, step.do) {
			return
		}
	}
}

// reads waits until that many pods that stay read copies of each level, and all of these say so.
func (b *beside) reads(t *testing.T, want map[string]int) {
	t.Helper()
	await(t, fmt.Sprintf("the levels are %v", want), func(ctx context.Context) error {
		have := map[string]int{}
		for _, p := range b.list(t) {
			if p.DeletionTimestamp != nil {
				continue
			}
			level, err := b.level(ctx, &p)
			if err != nil {
				return err
			}
			have[level]++
		}
		if fmt.Sprint(have) != fmt.Sprint(want) {
			return fmt.Errorf("they are %v", have)
		}
		return nil
	})
}

// level is what a pod reads: of a copy, or "the author's".
func (b *beside) level(ctx context.Context, p *corev1.Pod) (string, error) {
	refs, c := content.Refs(&p.Spec), &p.Spec.Containers[0]
	refs = slices.DeleteFunc(refs, func(r content.Ref) bool { return r.Name == "kube-root-ca.crt" })
	if len(refs) != 2 || len(c.EnvFrom) != 1 || c.EnvFrom[0].ConfigMapRef.Name != refs[0].Name {
		return "", fmt.Errorf("pod %s reads %v", p.Name, refs)
	}
	id := content.IDOf(p.Labels[content.RevisionLabel])
	if refs[0].Name == "settings" && refs[1].Name == "token" && id == "" {
		return "the author's", nil
	}
	if refs[1].Name == "token" || id == "" {
		return "", fmt.Errorf("pod %s reads %v, and its revision is %q", p.Name, refs, p.Labels[content.RevisionLabel])
	}
	m, err := b.client.CoreV1().ConfigMaps("default").Get(ctx, refs[0].Name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	_, err = b.client.CoreV1().Secrets("default").Get(ctx, refs[1].Name, metav1.GetOptions{})
	return m.Data["level"], err
}

// turnsOn has no right first, then those that the guide names.
func (b *beside) turnsOn(t *testing.T) {
	b.kubectl(t, "apply", "-f", b.write("settings.yaml", settings("info")))
	b.kubectl(t, "create", "secret", "generic", "token", "--from-literal=token="+tokenValue)
	b.kubectl(t, "apply", "-f", b.write("agent.yaml", reader))
	b.settled(t)
	before := b.pods(t)
	b.kubectl(t, "apply", "-f", b.write("policy.yaml", withContent))
	b.stored(t, true)
	await(t, "the rollout names the role that is missing", func(context.Context) error {
		a := b.run(t, "rollout", "status", "daemonset/agent", "--timeout=1s")
		if strings.Contains(strings.Join(strings.Fields(a.out), " "), "a RoleBinding to ClusterRole everynode:content in the namespace allows it") {
			return nil
		}
		return fmt.Errorf("%s%s", a.out, a.errOut)
	})
	b.samePods(t, before)
	for _, role := range []string{"content", "content-secrets"} {
		b.kubectl(t, "-n", "default", "create", "rolebinding", role, "--clusterrole=everynode:"+role,
			"--serviceaccount=kube-system:everynode-beside")
	}
	b.phase(t, "Complete")
	b.reads(t, map[string]int{"info": nodes})
	b.lose(t, "1")
	b.reads(t, map[string]int{"info": nodes})
	b.same(t, "agent.yaml")
}

// badKey has a level that there is not.
func (b *beside) badKey(t *testing.T) {
	before := b.pods(t)
	bad := b.write("bad.yaml", settings("verbos"))
	b.run(t, "plan", "-f", bad).says(t, "DaemonSet default/agent", "ConfigMap settings, key level: info -> verbos",
		"12 nodes: 12 change", "canary 1")
	since := time.Now()
	b.kubectl(t, "apply", "-f", bad)
	b.phase(t, "RolledBack")
	b.reads(t, map[string]int{"info": nodes})
	t.Logf("all nodes had the old level back after %v", time.Since(since).Round(time.Second))
	b.unchanged(t, before, 1)
	b.seen(t, "Failed", "Degraded")
	b.run(t, "why", "daemonset/agent").ends(t, 0).says(t, "ConfigMap settings: level")
	var is corev1.ConfigMap
	err := json.Unmarshal([]byte(b.kubectl(t, "get", "configmap", "settings", "-o", "json")), &is)
	if err != nil || fmt.Sprint(is.Data) != "map[level:verbos]" || is.Immutable != nil || len(is.Labels)+len(is.OwnerReferences) > 0 {
		t.Errorf("the author's object is %+v (%v)", is, err)
	}
	b.lose(t, "1") // what comes back has what is stable, and not what the author's object holds
	b.reads(t, map[string]int{"info": nodes})
	b.phase(t, "RolledBack")
}

// goodKey mends it.
func (b *beside) goodKey(t *testing.T) {
	b.kubectl(t, "apply", "-f", b.write("good.yaml", settings("debug")))
	b.phase(t, "Complete")
	b.reads(t, map[string]int{"debug": nodes})
	b.seen(t, "Current", "Healthy")
}

// unanswered kills all replicas. A pod that is made then reads the author's objects until somebody is back.
func (b *beside) unanswered(t *testing.T) {
	before := b.pods(t)
	b.kill(t, b.replicas...)
	b.lose(t, "1")
	b.reads(t, map[string]int{"debug": nodes - 1, "the author's": 1})
	b.begins(t)
	b.event(t, "WrongRevision", "1 nodes, such as ")
	b.reads(t, map[string]int{"debug": nodes})
	b.phase(t, "Complete")
	b.unchanged(t, before, 1)
}

// newReader applies another DaemonSet. No pod of it may read what its author's objects hold.
func (b *beside) newReader(t *testing.T) {
	b.second(t, reader)
	list, err := b.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=second"})
	if err != nil {
		t.Fatal(err)
	}
	if len(list.Items) != nodes {
		t.Errorf("there are %d pods", len(list.Items))
	}
	for i := range list.Items {
		level, err := b.level(t.Context(), &list.Items[i])
		if err != nil || level != "debug" {
			t.Errorf("pod %s reads %q (%v)", list.Items[i].Name, level, err)
		}
	}
	b.madeOnce(t, "second")
	b.kubectl(t, "delete", "ds/second")
}

// missing applies a DaemonSet that may read, in each way, a ConfigMap and a Secret that nobody has made. What its volumes
// refer to can be made by nobody, and what its variables refer to is there.
func (b *beside) missing(t *testing.T) {
	b.second(t, strings.NewReplacer("envFrom: [", "envFrom: [{configMapRef: {name: extra, optional: true}}, {secretRef: {name: extra, optional: true}}, ",
		"env: [", "env: [{name: A, valueFrom: {configMapKeyRef: {name: extra, key: a, optional: true}}},\n"+
			"           {name: B, valueFrom: {secretKeyRef: {name: extra, key: b, optional: true}}},\n           ").Replace(reader)+
		`      - {name: map, configMap: {name: extra, optional: true}}
      - {name: secret, secret: {secretName: extra, optional: true}}
      - {name: both, projected: {sources: [{configMap: {name: extra, optional: true}}, {secret: {name: extra, optional: true}}]}}
`)
	list, err := b.client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=second"})
	if err != nil || len(list.Items) != nodes {
		t.Fatalf("there are %d pods (%v)", len(list.Items), err)
	}
	spec := &list.Items[0].Spec
	volumes := map[string]string{}
	for _, v := range spec.Volumes {
		switch v.Name {
		case "map":
			volumes["configmap "+v.ConfigMap.Name] = v.ConfigMap.Name
		case "secret":
			volumes["secret "+v.Secret.SecretName] = v.Secret.SecretName
		case "both":
			volumes["configmap "+v.Projected.Sources[0].ConfigMap.Name] = v.Projected.Sources[0].ConfigMap.Name
			volumes["secret "+v.Projected.Sources[1].Secret.Name] = v.Projected.Sources[1].Secret.Name
		}
	}
	if len(volumes) != 2 {
		t.Errorf("its volumes refer to %v", volumes)
	}
	b.empty(t, &spec.Containers[0])
	for what, name := range volumes {
		_, err := b.client.CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			t.Errorf("%s: %v", what, err)
		}
		_, err = b.client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) {
			t.Errorf("somebody makes %s: %v", what, err)
		}
	}
	b.kubectl(t, "delete", "ds/second")
}

// empty wants the first variables of a container to be of immutable objects that hold nothing.
func (b *beside) empty(t *testing.T, c *corev1.Container) {
	t.Helper()
	conf, secret := c.EnvFrom[0].ConfigMapRef.Name, c.EnvFrom[1].SecretRef.Name
	if conf != c.Env[0].ValueFrom.ConfigMapKeyRef.Name || secret != c.Env[1].ValueFrom.SecretKeyRef.Name {
		t.Errorf("its variables refer to %+v and %+v", c.EnvFrom, c.Env)
	}
	m, err := b.client.CoreV1().ConfigMaps("default").Get(t.Context(), conf, metav1.GetOptions{})
	if err != nil || len(m.Data)+len(m.BinaryData) > 0 || m.Immutable == nil || !*m.Immutable {
		t.Errorf("its variables are of %+v (%v)", m, err)
	}
	s, err := b.client.CoreV1().Secrets("default").Get(t.Context(), secret, metav1.GetOptions{})
	if err != nil || len(s.Data) > 0 || s.Immutable == nil || !*s.Immutable {
		t.Errorf("its variables are of %+v (%v)", s, err)
	}
}

// second applies a DaemonSet like one of the name agent, and waits until its rollout is complete.
func (b *beside) second(t *testing.T, like string) {
	t.Helper()
	names := strings.NewReplacer("name: agent, namespace", "name: second, namespace", "app: agent", "app: second")
	b.kubectl(t, "apply", "-f", b.write("second.yaml", names.Replace(like)))
	await(t, "its rollout is Complete", func(context.Context) error {
		a := b.run(t, "rollout", "status", "daemonset/second", "--timeout=1s")
		if a.code != 0 || !strings.Contains(a.out, "Complete") {
			return fmt.Errorf("%s%s", a.out, a.errOut)
		}
		return nil
	})
}

// madeOnce wants a DaemonSet to have had one pod made for each node, by its events.
func (b *beside) madeOnce(t *testing.T, name string) {
	t.Helper()
	await(t, "one pod was made for each node", func(ctx context.Context) error {
		events, err := b.client.CoreV1().Events("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		made := 0
		for _, e := range events.Items {
			if e.InvolvedObject.Name == name && e.Reason == "SuccessfulCreate" {
				made += int(max(e.Count, 1))
			}
		}
		if made > nodes {
			t.Fatalf("%d pods of %s were made, want %d", made, name, nodes)
		}
		if made < nodes {
			return fmt.Errorf("%d were", made)
		}
		return nil
	})
}

// leavesCopies gives everything back. No pod restarts, and each keeps its copy until it is next made.
func (b *beside) leavesCopies(t *testing.T) {
	before := b.pods(t)
	b.leave(t).ends(t, 0).says(t, "the pods of 12 nodes read copies of its content until they are next made")
	b.kill(t, b.replicas...)
	b.stored(t, false)
	b.samePods(t, before)
	b.reads(t, map[string]int{"debug": nodes})
	b.lose(t, "1")
	b.reads(t, map[string]int{"debug": nodes - 1, "the author's": 1})
	b.logsHide(t, b.replicas...)
}

// tokenValue is what the Secret holds.
const tokenValue = "hush-4711-hush"

// hidesToken changes the Secret, to have it in all that is told, and looks for the old value and the new one.
func (b *beside) hidesToken(t *testing.T) {
	rotated := b.write("rotated.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: token, namespace: default}\n"+
		"stringData: {token: "+tokenValue+"-2}\n")
	shown := map[string]string{"plan": b.run(t, "plan", "-f", rotated).says(t, "Secret token, key token").out}
	b.kubectl(t, "apply", "-f", rotated)
	await(t, "the rollout tells of the key", func(context.Context) error {
		out := b.kubectl(t, "get", "dsr", "agent", "-o", "yaml")
		if !strings.Contains(out, "Secret token: token") {
			return errors.New(out)
		}
		return nil
	})
	b.phase(t, "Complete")
	for _, line := range []string{
		"why daemonset/agent", "rollout status daemonset/agent --watch=false", "doctor",
		"kubectl describe daemonset,dsr,rp,pod,configmap,secret,controllerrevision",
		"kubectl get events,daemonset,dsr,rp,pod,configmap,controllerrevision -o yaml",
	} {
		shown[line] = b.run(t, strings.Fields(line)...).out
	}
	for what, out := range shown {
		secrecy.Hides(t, what, []byte(out), tokenValue)
	}
	for _, at := range b.shows {
		out, err := metricsAt(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		secrecy.Hides(t, "the metrics at "+at, out, tokenValue)
	}
	b.logsHide(t, b.replicas...)
}

// logsHide wants no value of a Secret in what programs of ours log.
func (c *cluster) logsHide(t *testing.T, programs ...*process) {
	t.Helper()
	for _, p := range programs {
		secrecy.Hides(t, "the log of "+p.name, []byte(p.tail(10_000_000)), tokenValue)
	}
}
