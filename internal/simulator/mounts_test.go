package simulator

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/content"
	podfacts "github.com/everynode/everynode/internal/objects/pod"
)

// conf makes a ConfigMap.
func (c *cluster) conf(name, value string) {
	c.t.Helper()
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault}, Data: map[string]string{"k": value},
	}
	_, err := c.client.CoreV1().ConfigMaps(m.Namespace).Create(c.t.Context(), m, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
}

// A running pod whose volumes are pointed at other content says that they show it, and is ill of it if it is bad.
func TestPodsArePointedAtContent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faults := plan(t, `faults: [{name: bad, badContent: {key: k, value: bad, after: 1s, exitCode: 2}}]`)
		c := start(t, Config{Nodes: 1, Faults: faults}, nil)
		ids := []string{strings.Repeat("a", 24), strings.Repeat("b", 24)}
		c.conf("conf-"+ids[0], "good")
		c.conf("conf-"+ids[1], "bad")
		p := newPod("p", "demo:1")
		of := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "conf-" + ids[0]}}
		p.Spec.Volumes = []corev1.Volume{{Name: "conf", VolumeSource: corev1.VolumeSource{ConfigMap: of}}}
		c.bind(p, "sim-0001")
		c.pass(time.Minute)
		if p := c.pod("p"); !ready(p) || podfacts.Condition(p, content.MountedCondition) != nil {
			t.Errorf("before: %+v", p.Status)
		}
		to := content.Pointing{Content: ids[1], At: time.Now(), Volumes: []content.Pointed{
			{Ref: content.Ref{Kind: content.ConfigMap, Name: "conf-" + ids[0]}, Copy: "conf-" + ids[1]},
		}}
		text, err := to.Text()
		if err != nil {
			t.Fatal(err)
		}
		p = c.pod("p").DeepCopy()
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, content.LiveName, text)
		_, err = c.client.CoreV1().Pods(p.Namespace).Update(t.Context(), p, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c.pass(2 * time.Second)
		p = c.pod("p")
		is := podfacts.Condition(p, content.MountedCondition)
		if is == nil || is.Status != corev1.ConditionTrue || is.Message != to.Key() {
			t.Errorf("the volumes show %+v, want %s", is, to.Key())
		}
		if ready(p) {
			t.Error("the pod works with what is bad")
		}
	})
}
