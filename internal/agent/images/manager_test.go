package images

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	testingclock "k8s.io/utils/clock/testing"
)

// service is an image service. Pulls wait for the test if gate is set.
type service struct {
	internalapi.ImageManagerService
	mu      sync.Mutex
	present map[string]*runtimeapi.Image
	gate    chan struct{}
	begun   chan struct{}
	pulls   []string
	// accept is the password that the registry wants; empty accepts all.
	accept string
	// refuse lets nobody in, and says whom.
	refuse bool
	fail   error
}

func (s *service) ImageStatus(_ context.Context, spec *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &runtimeapi.ImageStatusResponse{Image: s.present[spec.Image]}, nil
}

func (s *service) PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	s.mu.Lock()
	s.pulls = append(s.pulls, spec.Image+" "+auth.GetUsername())
	s.mu.Unlock()
	if s.gate != nil {
		s.begun <- struct{}{}
		select {
		case <-s.gate:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return "", s.fail
	}
	if s.refuse {
		return "", errors.New(auth.GetUsername() + " is refused")
	}
	if s.accept != "" && auth.GetPassword() != s.accept {
		return "", errors.New("unauthorized")
	}
	image := &runtimeapi.Image{Id: "sha256:1", Size: 42, Uid: &runtimeapi.Int64Value{Value: 7}}
	s.present[spec.Image], s.present["sha256:1"] = image, image
	return "sha256:1", nil
}

type fixture struct {
	*service
	manager *Manager
	mu      sync.Mutex
	events  []string
	secrets map[string]*corev1.Secret
}

func newFixture() *fixture {
	f := &fixture{service: &service{present: map[string]*runtimeapi.Image{}}, secrets: map[string]*corev1.Secret{}}
	f.manager = New(Config{
		Service: f.service, Clock: testingclock.NewFakePassiveClock(time.Unix(0, 0)),
		Secrets: func(_ context.Context, _, name string) (*corev1.Secret, error) {
			if s, ok := f.secrets[name]; ok {
				return s, nil
			}
			return nil, apierrors.NewNotFound(corev1.Resource("secrets"), name)
		},
		Record: func(_ *corev1.Pod, container, eventType, reason, message string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.events = append(f.events, strings.Join([]string{container, eventType, reason, message}, " "))
		},
	})
	return f
}

func (f *fixture) ensure(t *testing.T, image string, policy corev1.PullPolicy, secrets ...string) (Image, error) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	for _, s := range secrets {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
	}
	return f.manager.Ensure(t.Context(), pod, &corev1.Container{Name: "c", Image: image, ImagePullPolicy: policy})
}

const pulled = `c Normal Pulled Successfully pulled image "r.io/a:1" in 0s (0s including waiting). Image size: 42 bytes.`

func TestEnsure(t *testing.T) {
	present := map[string]*runtimeapi.Image{"r.io/a:1": {Id: "sha256:0", Username: "daemon"}}
	tests := []struct {
		name    string
		image   string
		present map[string]*runtimeapi.Image
		policy  corev1.PullPolicy
		fail    error
		want    string
		reason  string
		events  []string
	}{
		{"present", "r.io/a:1", present, corev1.PullIfNotPresent, nil, "sha256:0", "",
			[]string{`c Normal Pulled Container image "r.io/a:1" already present on machine`}},
		{"present, never pulled", "r.io/a:1", present, corev1.PullNever, nil, "sha256:0", "",
			[]string{`c Normal Pulled Container image "r.io/a:1" already present on machine`}},
		{"present, always pulled", "r.io/a:1", present, corev1.PullAlways, nil, "sha256:1", "",
			[]string{`c Normal Pulling Pulling image "r.io/a:1"`, pulled}},
		{"absent", "r.io/a:1", nil, corev1.PullIfNotPresent, nil, "sha256:1", "",
			[]string{`c Normal Pulling Pulling image "r.io/a:1"`, pulled}},
		{"absent, never pulled", "r.io/a:1", nil, corev1.PullNever, nil, "", "ErrImageNeverPull",
			[]string{`c Warning ErrImageNeverPull Container image "r.io/a:1" is not present with pull policy of Never`,
				`c Warning Failed Error: ErrImageNeverPull`}},
		{"unreachable", "r.io/a:1", nil, corev1.PullIfNotPresent, errors.New("no route"), "", "ErrImagePull",
			[]string{`c Normal Pulling Pulling image "r.io/a:1"`, `c Warning Failed Failed to pull image "r.io/a:1": no route`,
				`c Warning Failed Error: ErrImagePull`}},
		{"bad name", "R.io//a", nil, corev1.PullIfNotPresent, nil, "", "InvalidImageName",
			[]string{`c Warning InspectFailed Failed to apply default image tag "R.io//a": couldn't parse image name "R.io//a": invalid reference format`,
				`c Warning Failed Error: InvalidImageName`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFixture()
			for k, v := range tt.present {
				f.present[k] = v
			}
			f.fail = tt.fail
			image, err := f.ensure(t, tt.image, tt.policy)
			var why *Error
			if errors.As(err, &why) != (tt.reason != "") || (why != nil && why.Reason != tt.reason) {
				t.Errorf("error %v, want reason %q", err, tt.reason)
			}
			if image.Ref != tt.want {
				t.Errorf("image %q, want %q", image.Ref, tt.want)
			}
			if !slices.Equal(f.events, tt.events) {
				t.Errorf("events:\n%s\nwant:\n%s", strings.Join(f.events, "\n"), strings.Join(tt.events, "\n"))
			}
		})
	}
}

func TestOnePullForAll(t *testing.T) {
	f := newFixture()
	f.gate, f.begun = make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	first := func() {
		if _, err := f.ensure(t, "r.io/a:1", corev1.PullAlways); err != nil {
			t.Errorf("a waiter got %v", err)
		}
	}
	wg.Go(first)
	<-f.begun
	for range 5 {
		wg.Go(first)
	}
	for {
		f.manager.mu.Lock()
		waiters := 0
		for _, p := range f.manager.pulls {
			waiters = p.waiters
		}
		f.manager.mu.Unlock()
		if waiters == 6 {
			break
		}
	}
	close(f.gate)
	wg.Wait()
	if len(f.pulls) != 1 {
		t.Errorf("pulled %d times, want once", len(f.pulls))
	}
}

func TestPullEndsWithItsLastWaiter(t *testing.T) {
	f := newFixture()
	f.gate, f.begun = make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := f.manager.Ensure(ctx, &corev1.Pod{}, &corev1.Container{Image: "r.io/a:1", ImagePullPolicy: corev1.PullAlways})
		done <- err
	}()
	<-f.begun
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want that it was given up", err)
	}
	f.manager.mu.Lock()
	defer f.manager.mu.Unlock()
	if len(f.manager.pulls) != 0 {
		t.Error("the pull is still kept")
	}
}

func dockerConfig(entries ...string) *corev1.Secret {
	var auths []string
	for i := 0; i < len(entries); i += 3 {
		auth := base64.StdEncoding.EncodeToString([]byte(entries[i+1] + ":" + entries[i+2]))
		auths = append(auths, fmt.Sprintf("%q:{%q:%q}", entries[i], "auth", auth))
	}
	return &corev1.Secret{Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{` + strings.Join(auths, ",") + `}}`)}}
}

func TestPullSecrets(t *testing.T) {
	f := newFixture()
	f.accept = "right"
	f.secrets["s"] = dockerConfig("r.io/team", "narrow", "wrong", "https://r.io/v1/", "wide", "right", "other.io", "other", "right")
	if _, err := f.ensure(t, "r.io/team/a:1", corev1.PullAlways, "missing", "s"); err != nil {
		t.Errorf("error %v, want that the second credentials work", err)
	}
	if want := []string{"r.io/team/a:1 narrow", "r.io/team/a:1 wide"}; !slices.Equal(f.pulls, want) {
		t.Errorf("tries %q, want %q", f.pulls, want)
	}
	if want := "Warning FailedToRetrieveImagePullSecret Unable to retrieve some image pull secrets (missing);"; !strings.Contains(f.events[0], want) {
		t.Errorf("the first event is %q, want %q", f.events[0], want)
	}
	before := len(f.events)
	if _, err := f.ensure(t, "r.io/team/a:1", corev1.PullIfNotPresent, "missing", "s"); err != nil || len(f.events) < before+2 || !strings.Contains(f.events[before], "secrets (missing);") {
		t.Errorf("with the image there: %v and events %q, want that the missing secret is told too", err, f.events[before:])
	}
	f.secrets["bad"] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("{secret")}}
	if _, err := f.ensure(t, "r.io/team/a:1", corev1.PullAlways, "bad"); err == nil || strings.Contains(err.Error(), "{secret") {
		t.Errorf("error %v, want one that does not show the secret's content", err)
	}
}

func TestEachSecretForARegistryIsTried(t *testing.T) {
	f := newFixture()
	f.accept = "right"
	f.secrets["old"], f.secrets["same"] = dockerConfig("r.io", "old", "wrong"), dockerConfig("r.io", "old", "wrong")
	f.secrets["new"] = dockerConfig("r.io", "new", "right")
	if _, err := f.ensure(t, "r.io/a:1", corev1.PullAlways, "old", "same", "new"); err != nil {
		t.Errorf("error %v, want that the last secret works", err)
	}
	if want := []string{"r.io/a:1 old", "r.io/a:1 new"}; !slices.Equal(f.pulls, want) {
		t.Errorf("tries %q, want %q", f.pulls, want)
	}
}

func TestWhatEachCredentialsMeetIsTold(t *testing.T) {
	f := newFixture()
	f.refuse = true
	f.secrets["s"] = dockerConfig("r.io", "a", "1", "r.io/team", "b", "2")
	_, err := f.ensure(t, "r.io/team/a:1", corev1.PullAlways, "s")
	if want := "[b is refused, a is refused]"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestRegistryMatches(t *testing.T) {
	for _, tt := range []struct {
		registry, host, repository string
		want                       bool
	}{
		{"r.io", "r.io", "a", true},
		{"r.io", "x.r.io", "a", false},
		{"*.r.io", "x.r.io", "a", true},
		{"*.r.io", "r.io", "a", false},
		{"r.io:5000", "r.io", "a", false},
		{"r.io:5000", "r.io:5000", "a", true},
		{"https://index.docker.io/v1/", "docker.io", "library/nginx", true},
		{"r.io/team", "r.io", "team/a", true},
		{"r.io/team", "r.io", "team2/a", false},
		{"://", "r.io", "a", false},
	} {
		if got := matches(tt.registry, tt.host, tt.repository); got != tt.want {
			t.Errorf("credentials for %s fit %s/%s: %t, want %t", tt.registry, tt.host, tt.repository, got, tt.want)
		}
	}
}

// pullInBackground begins pulls until the test ends.
func (f *fixture) pullInBackground(t *testing.T) func(image string) {
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	f.gate, f.begun = make(chan struct{}), make(chan struct{})
	return func(image string) {
		wg.Go(func() {
			_, _ = f.manager.Ensure(ctx, &corev1.Pod{}, &corev1.Container{Image: image, ImagePullPolicy: corev1.PullAlways})
		})
	}
}

func TestHungPullsBlockTheirRegistryOnly(t *testing.T) {
	f := newFixture()
	f.manager.turn = time.Hour
	pull := f.pullInBackground(t)
	for n := range maxPulls {
		pull(fmt.Sprintf("hung.io/a:%d", n))
		<-f.begun
	}
	pull("hung.io/late:1")
	pull("r.io/a:1")
	<-f.begun
	f.service.mu.Lock()
	defer f.service.mu.Unlock()
	if slices.ContainsFunc(f.pulls, func(p string) bool { return strings.Contains(p, "late") }) {
		t.Error("more pulls from one registry run at a time than may")
	}
}

func TestHungPullsMakeRoomAfterATurn(t *testing.T) {
	f := newFixture()
	f.manager.turn = time.Millisecond
	pull := f.pullInBackground(t)
	for n := range maxPulls + 1 {
		pull(fmt.Sprintf("slow.io/a:%d", n))
		<-f.begun
	}
}

// What is told of an image is the digest of the repository that was asked for: the node may know it by others too.
func TestDigestOfAnImage(t *testing.T) {
	for _, c := range []struct {
		name    string
		digests []string
		want    string
	}{
		{"example.com/rules:live", []string{"mirror.example.com/rules@sha256:1", "example.com/rules@sha256:2"}, "example.com/rules@sha256:2"},
		{"example.com/rules@sha256:2", []string{"example.com/rules@sha256:2"}, "example.com/rules@sha256:2"},
		{"docker.io/library/rules:live", []string{"docker.io/library/rules@sha256:1"}, "docker.io/library/rules@sha256:1"},
		{"example.com/rules:live", []string{"mirror.example.com/rules@sha256:1"}, "mirror.example.com/rules@sha256:1"},
		{"sha256:1", []string{"mirror.example.com/rules@sha256:1"}, "mirror.example.com/rules@sha256:1"},
		{"example.com/rules:live", nil, "sha256:0"},
	} {
		for i, digest := range c.digests { // as reference.Parse wants them
			name, hex, _ := strings.Cut(digest, "sha256:")
			c.digests[i] = name + "sha256:" + strings.Repeat(hex, 64)
		}
		name, hex, _ := strings.Cut(c.want, "@sha256:")
		if hex != "" {
			c.want = name + "@sha256:" + strings.Repeat(hex, 64)
		}
		got := describe(&runtimeapi.Image{Id: "sha256:0", RepoDigests: c.digests}, c.name)
		if got.Ref != "sha256:0" || got.Digest != c.want {
			t.Errorf("%s, which the node knows as %v, is told as %q, want %q", c.name, c.digests, got.Digest, c.want)
		}
	}
}
