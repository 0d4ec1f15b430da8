package mounts

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/everynode/everynode/internal/change/content"
)

const (
	copyA = "conf-aaaaaaaaaaaaaaaaaaaaaaaa"
	copyB = "conf-bbbbbbbbbbbbbbbbbbbbbbbb"
)

// store has ConfigMaps and Secrets by name, and counts how often it was asked.
type store struct {
	maps, secrets map[string]string
	asked         int
	broken        error
}

func (s *store) reader() Reader {
	return Reader{
		ConfigMap: func(_ context.Context, _, name string) (*corev1.ConfigMap, error) {
			value, err := s.get(s.maps, name)
			return &corev1.ConfigMap{Data: map[string]string{"value": value}}, err
		},
		Secret: func(_ context.Context, _, name string) (*corev1.Secret, error) {
			value, err := s.get(s.secrets, name)
			return &corev1.Secret{Data: map[string][]byte{"value": []byte(value)}}, err
		},
	}
}

func (s *store) get(from map[string]string, name string) (string, error) {
	s.asked++
	value, is := from[name]
	switch {
	case s.broken != nil:
		return "", s.broken
	case !is:
		return "", fmt.Errorf("get: %w", apierrors.NewNotFound(corev1.Resource("objects"), name))
	}
	return value, nil
}

func pod() *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{
		{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: copyA},
		}}},
		{VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "pass"}}},
	}}}
}

// pointed has the volume show copyB.
func pointed(t *testing.T, p *corev1.Pod) *content.Pointing {
	t.Helper()
	to := &content.Pointing{
		Content: strings.Repeat("b", 24), At: time.Unix(7, 0), Settle: metav1.Duration{Duration: time.Second},
		Volumes: []content.Pointed{{Ref: content.Ref{Kind: content.ConfigMap, Name: copyA}, Copy: copyB}},
	}
	text, err := to.Text()
	if err != nil {
		t.Fatal(err)
	}
	p.Annotations = map[string]string{content.LiveName: text}
	return to
}

func read(t *testing.T, s *Shown, p *corev1.Pod, asked bool, r Reader) string {
	t.Helper()
	if err := s.Read(t.Context(), p, asked, r); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(s.Data())
}

func TestPodReadsOnceAndWhenItIsPointed(t *testing.T) {
	maps, secrets := map[string]string{copyA: "a", copyB: "b"}, map[string]string{"pass": "p"}
	objects, p, s := &store{maps: maps, secrets: secrets}, pod(), &Shown{}
	if got := read(t, s, p, false, objects.reader()); got != "[]" || objects.asked > 0 {
		t.Errorf("a pod that nothing ails has read %s", got)
	}
	if got := read(t, s, p, true, objects.reader()); got != "[map[value:a] map[value:p]]" || s.Content().Key != "" {
		t.Errorf("a new pod has read %s, and says %v", got, s.Content())
	}
	objects.maps[copyA] = "other"
	if got := read(t, s, p, true, objects.reader()); got != "[map[value:a] map[value:p]]" {
		t.Errorf("later it has read %s", got)
	}
	to := pointed(t, p)
	got := read(t, s, p, true, objects.reader())
	if got != "[map[value:b] map[value:p]]" || s.Content().Key != to.Key() {
		t.Errorf("pointed it has read %s, and says %v", got, s.Content())
	}
	asked := objects.asked
	if read(t, s, p, true, objects.reader()); objects.asked != asked {
		t.Error("it has read again what it shows already")
	}
}

func TestWhatIsNotThere(t *testing.T) {
	objects, p, s := &store{maps: map[string]string{}}, pod(), &Shown{}
	if got := read(t, s, p, true, objects.reader()); got != "[]" || s.Content().Err != nil {
		t.Errorf("of what is not there a pod has read %s, and says %v", got, s.Content())
	}
	pointed(t, p)
	if read(t, s, p, false, objects.reader()); s.Content().Err == nil {
		t.Error("pointed at a copy that is not there it says nothing")
	}
	objects.maps[copyB] = "b"
	if got := read(t, s, p, false, objects.reader()); got != "[map[value:b]]" || s.Content().Err != nil {
		t.Errorf("when the copy came it has read %s, and says %v", got, s.Content())
	}
}

func TestWhatCannotBeRead(t *testing.T) {
	objects, s := &store{broken: errors.New("no answer")}, &Shown{}
	if err := s.Read(t.Context(), pod(), true, objects.reader()); !errors.Is(err, objects.broken) {
		t.Errorf("got %v", err)
	}
	p := pod()
	p.Annotations = map[string]string{content.LiveName: "{"}
	if err := s.Read(t.Context(), p, true, objects.reader()); err == nil {
		t.Error("an annotation that cannot be read is no error")
	}
}

func TestSecretsAreNotReadUnlessThatIsAllowed(t *testing.T) {
	objects, s := &store{maps: map[string]string{copyA: "a"}}, &Shown{}
	r := objects.reader()
	r.Secret = nil
	if got := read(t, s, pod(), true, r); got != "[map[value:a] map[]]" {
		t.Errorf("got %s", got)
	}
}
