package images

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/everynode/everynode/internal/agent/credentialprovider"
)

// programs say the same for every image, and remember for which they were asked.
type programs struct {
	answers []credentialprovider.Credentials
	fails   error
	asked   []string
}

func (p *programs) Ask(_ context.Context, image string) ([]credentialprovider.Credentials, error) {
	p.asked = append(p.asked, image)
	return p.answers, p.fails
}

func oneLogin(registry, user string) []byte {
	return []byte(`{"auths":{"` + registry + `":{"username":"` + user + `","password":"p"}}}`)
}

// What a pod brings is tried first, however narrow the others are.
func TestWhoseCredentialsAreFirst(t *testing.T) {
	f := newFixture()
	f.refuse = true
	f.secrets["s"] = &corev1.Secret{Data: map[string][]byte{corev1.DockerConfigJsonKey: oneLogin("r.io", "pod")}}
	path := filepath.Join(t.TempDir(), "config.json")
	if err := os.WriteFile(path, oneLogin("r.io/team", "node"), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := &programs{answers: []credentialprovider.Credentials{{"r.io/team/app": {Username: "first"}, "r.io": {Username: "wide"}, "other.io": {Username: "no"}}, {"*.io": {Username: "second"}}}}
	f.manager.cfg.LoginFile, f.manager.cfg.Programs = path, asked
	if _, err := f.ensure(t, "r.io/team/app:1", corev1.PullAlways, "s"); err == nil {
		t.Fatal("nobody is let in, and the image is there")
	}
	if got, want := strings.Join(f.pulls, ", "), "r.io/team/app:1 pod, r.io/team/app:1 node, r.io/team/app:1 first, r.io/team/app:1 wide, r.io/team/app:1 second"; got != want {
		t.Errorf("tried %s, want %s", got, want)
	}
	if got := strings.Join(asked.asked, " "); got != "r.io/team/app" {
		t.Errorf("the programs were asked for %s", got)
	}
}

func TestProgramsThatFailAreNamed(t *testing.T) {
	f := newFixture()
	f.manager.cfg.Programs = &programs{fails: errors.New("credential provider one: exit status 1")}
	if _, err := f.ensure(t, "r.io/a:1", corev1.PullAlways); err != nil {
		t.Errorf("an image that needs no credentials: %v", err)
	}
	f.fail = errors.New("unauthorized")
	_, err := f.ensure(t, "r.io/b:1", corev1.PullAlways)
	if want := "unauthorized; besides, credential provider one: exit status 1"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %q", err, want)
	}
	if last := f.events[len(f.events)-2]; !strings.Contains(last, "besides, credential provider one") {
		t.Errorf("the event says %s", last)
	}
}

func TestOnePullAtATime(t *testing.T) {
	f := newFixture()
	f.manager.cfg.MaxPulls = 1
	f.gate, f.begun = make(chan struct{}), make(chan struct{}, 2)
	var wg sync.WaitGroup
	for _, image := range []string{"a.io/a:1", "b.io/b:1"} {
		wg.Go(func() {
			if _, err := f.ensure(t, image, corev1.PullAlways); err != nil {
				t.Error(err)
			}
		})
	}
	<-f.begun
	f.manager.mu.Lock()
	places := f.manager.slots
	f.manager.mu.Unlock()
	if len(places) != 1 || len(places[""]) != 1 || cap(places[""]) != 1 {
		t.Errorf("the places are %v", places)
	}
	f.gate <- struct{}{}
	<-f.begun
	close(f.gate)
	wg.Wait()
	if len(f.pulls) != 2 {
		t.Errorf("pulled %q", f.pulls)
	}
}
