package contents

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/content"
)

// mapsOnly is careful where Secrets are no content, which is the default.
var mapsOnly = strings.Replace(careful, "secrets: Referenced, ", "", 1)

// token has somebody write the Secret.
func (w *world) token(value string) {
	w.put(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "token"}, Data: map[string][]byte{"token": []byte(value)},
	})
	w.settle()
}

// members are the names of what a stable revision with content holds.
func (w *world) members() (names []string) {
	w.Helper()
	members, known := w.book.Members(w.set.UID, content.IDOf(w.status().StableRevision))
	if !known {
		w.Errorf("nobody knows what revision %s holds", w.status().StableRevision)
	}
	for _, m := range members {
		names = append(names, m.Ref.String())
	}
	return names
}

// A Secret that rotates every hour restarts nobody where Secrets are no content, and is not even read.
func TestSecretsThatRotateAreNoContentUnlessSomebodySaysSo(t *testing.T) {
	w := newWorld(t, mapsOnly)
	w.wantPhase(complete, "5 of 5")
	before, made := w.restarts, w.made
	for i := range 24 {
		w.token(fmt.Sprint("rotated ", i))
		w.pass(time.Hour)
	}
	if w.restarts != before || w.made != made {
		t.Errorf("%d pods and %d copies were made in a day", w.restarts-before, w.made-made)
	}
	if got := fmt.Sprint(w.members()); got != "[ConfigMap conf]" || w.reading[content.Secret] {
		t.Errorf("the content is %s, and Secrets are read: %t", got, w.reading[content.Secret])
	}
	w.write("new")
	w.pass(time.Minute)
	w.wantRuns(map[string]int{"new": 5})
	w.wantPhase(complete, "5 of 5")
}

// What is not text is copied as it is, and a change of it is one. The author's object may be immutable: who changes it
// deletes it and makes another, which is one change if it is done soon.
func TestBinaryDataOfAnImmutableObject(t *testing.T) {
	w := newWorld(t, careful)
	again := func(b byte) {
		w.drop(confRef)
		w.pass(2 * time.Second)
		w.put(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "conf", Annotations: map[string]string{"by": "author"}},
			Data:       map[string]string{"agent.conf": "good"}, BinaryData: map[string][]byte{"blob": {0, 255, b}},
			Immutable: new(true),
		})
		w.settle()
		w.pass(time.Minute)
		w.wantPhase(complete, "5 of 5")
	}
	again(1)
	before := w.restarts
	again(2)
	if w.restarts != before+5 {
		t.Errorf("%d pods were made for other bytes, want one on each node", w.restarts-before)
	}
	copied := w.objects[w.copyOf(w.status().StableRevision)].(*corev1.ConfigMap)
	if got := fmt.Sprint(copied.BinaryData, copied.Data); got != "map[blob:[0 255 2]] map[agent.conf:good]" {
		t.Errorf("the copy holds %s", got)
	}
	if len(copied.Annotations) > 0 || len(copied.Labels) != 1 {
		t.Errorf("the copy has annotations %v and labels %v", copied.Annotations, copied.Labels)
	}
	before = w.restarts
	again(2)
	if w.restarts != before {
		t.Errorf("%d pods were made for the same bytes", w.restarts-before)
	}
}

// What the cluster makes and renews is no content, nor is what the policy excludes by a label: also not while it is not
// there, where the name says so. A change of it restarts nobody.
func TestWhatTheClusterRenewsIsNoContent(t *testing.T) {
	w := newWorld(t, strings.Replace(careful, "names: [ca]", "selector: {matchLabels: {urgent: revocations}}", 1))
	spec := &w.set.Spec.Template.Spec
	for _, name := range []string{"kube-root-ca.crt", "revoked"} {
		spec.Containers = append(spec.Containers, corev1.Container{Name: name, EnvFrom: []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}},
		}})
	}
	spec.Volumes = append(spec.Volumes, corev1.Volume{
		Name: "api", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "account-token"}},
	})
	spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	others := func(value string) {
		w.put(&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "revoked", Labels: map[string]string{"urgent": "revocations"}},
			Data:       map[string]string{"list": value},
		})
		w.put(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "account-token"},
			Type:       corev1.SecretTypeServiceAccountToken, Data: map[string][]byte{"token": []byte(value)},
		})
		w.put(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "registry"},
			Type:       corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{".dockerconfigjson": []byte(value)},
		})
		w.settle()
	}
	others("first")
	w.edit()
	w.pass(time.Minute)
	w.wantPhase(complete, "5 of 5")
	const want = "[ConfigMap conf Secret token]"
	if got := fmt.Sprint(w.members()); got != want {
		t.Errorf("without the CA the content is %s, want %s", got, want)
	}
	before := w.restarts
	others("second")
	w.put(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": "new"},
	})
	w.pass(time.Minute)
	if got := fmt.Sprint(w.members()); got != want || w.restarts != before {
		t.Errorf("the content is %s, want %s, and %d pods were made", got, want, w.restarts-before)
	}
}

// What failed is a template with a content: another template over that content begins at the canary again, and stops
// there again.
func TestATemplateOverContentThatFailedBeginsAtTheCanary(t *testing.T) {
	w := newWorld(t, careful)
	w.write("bad")
	w.pass(10 * time.Minute)
	w.wantPhase(rolledBack, "failed on 1 of 1 node")
	stable, before := w.status().StableRevision, w.restarts
	w.edit()
	w.pass(10 * time.Minute)
	w.wantPhase(rolledBack, "revision t2.")
	w.wantRuns(map[string]int{"good": 5})
	if made := w.restarts - before; made != 2 || w.status().StableRevision != stable {
		t.Errorf("%d pods were made, and stable is %s; want two on the canary, and %s", made, w.status().StableRevision,
			stable)
	}
}
