package fetcher

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/everynode/everynode/internal/change/fetch"
)

// registry has images, and says of others what it is told to.
type registry struct {
	mu      sync.Mutex
	fails   map[string]string
	takes   time.Duration
	pulled  []string
	answers int
	// account has what each service account names; nil for an API server that does not answer.
	account map[string][]string
}

func (r *registry) secrets(_ context.Context, namespace, account string) (out []corev1.LocalObjectReference, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.account == nil {
		return nil, errors.New("read the pull secrets of service account " + account + ": it is away")
	}
	for _, s := range r.account[namespace+"/"+account] {
		out = append(out, corev1.LocalObjectReference{Name: s})
	}
	return out, nil
}

func (r *registry) names(account map[string][]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.account = account
}

func (r *registry) pull(ctx context.Context, pod *corev1.Pod, image string, policy corev1.PullPolicy) error {
	select {
	case <-time.After(r.takes):
	case <-ctx.Done():
		return ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if why := r.fails[image]; why != "" {
		return errors.New(why)
	}
	r.pulled = append(r.pulled, pod.Name+" "+image+" "+string(policy))
	return nil
}

func (r *registry) fail(image, why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails = map[string]string{image: why}
}

// forget has it forget what was pulled so far.
func (r *registry) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pulled = nil
}

func (r *registry) has() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.pulled, ", ")
}

// told is how many answers there were.
func (r *registry) told() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answers
}

func start(t *testing.T, r *registry, full func() string) *Fetcher {
	t.Helper()
	f := New(t.Context(), Config{Pull: r.pull, PullSecrets: r.secrets, Full: full, Clock: clock.RealClock{}, Answered: func(types.UID) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.answers++
	}})
	go f.Wait(t.Context())
	return f
}

func asks(t *testing.T, revision, lacks string, images ...fetch.Image) *corev1.Pod {
	t.Helper()
	return asksBy(t, &fetch.Request{Revision: revision, At: time.Now(), Images: images, Lacks: lacks})
}

func asksBy(t *testing.T, r *fetch.Request) *corev1.Pod {
	t.Helper()
	text, err := r.Text()
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "old", UID: "1", Annotations: map[string]string{fetch.Name: text}}}
}

// answer is what the fetcher says of the pod.
func answer(f *Fetcher, pod *corev1.Pod) string {
	c := f.Answer(pod.UID)
	if c == nil {
		return ""
	}
	p := pod.DeepCopy()
	p.Status.Conditions = []corev1.PodCondition{*c}
	is := fetch.ReportOf(p)
	return strings.TrimSuffix(string(is.Reason)+": "+is.Why, ": ")
}

func kept(t *testing.T, f *Fetcher) string {
	t.Helper()
	used, err := f.Beside(func(context.Context) (map[string]bool, error) { return map[string]bool{}, nil })(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(slices.Sorted(maps.Keys(used)), " ")
}

// A pod is answered once all its images are there, in one go, and they stay until the next pod has had time to come.
func TestFetching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{takes: time.Minute}
		f := start(t, r, nil)
		pod := asks(t, "b", "", fetch.Image{Image: "agent:2"}, fetch.Image{Image: "init:2", Policy: "Always"})
		f.PodChanged(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "2"}})
		f.PodChanged(pod)
		time.Sleep(90 * time.Second)
		f.PodChanged(pod.DeepCopy()) // something else of it changed
		synctest.Wait()
		if got := answer(f, pod); got != "" {
			t.Errorf("answered with %q after one of two", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := answer(f, pod); got != "Fetched" || r.told() != 1 {
			t.Errorf("%q, %d answers", got, r.told())
		}
		if got := r.has(); got != "old agent:2 , old init:2 Always" {
			t.Errorf("pulled %q", got)
		}
		const both = "docker.io/library/agent:2 docker.io/library/init:2"
		f.PodGone(pod.UID)
		time.Sleep(linger - time.Second)
		if got := kept(t, f); got != both {
			t.Errorf("kept %q while the next pod is about to come", got)
		}
		time.Sleep(2 * time.Second)
		if got := kept(t, f); got != "" {
			t.Errorf("kept %q for ever", got)
		}
		f.PodGone("2")
		if got := len(f.jobs); got != 0 {
			t.Errorf("%d jobs are left", got)
		}
	})
}

func TestWhatCannotBeFetched(t *testing.T) {
	for name, c := range map[string]struct {
		says, lacks, full string
		want              string
	}{
		"gone":                    {says: "agent:2: not found", want: "NotFound: agent:2: not found"},
		"private":                 {says: "401 Unauthorized", want: "Unauthorized: 401 Unauthorized"},
		"with another secret":     {says: "401 Unauthorized", lacks: "pull secret x", want: "NoSecret: this node may not read pull secret x before the next pod is there"},
		"away":                    {says: "dial tcp: connection refused", lacks: "pull secret x", want: "Unreachable: dial tcp: connection refused"},
		"no room":                 {full: "the node is short of disk", want: "NoSpace: the node is short of disk"},
		"what nobody knows":       {says: "oops", want: "PullFailed: oops"},
		"another is the node's":   {says: "oops", want: "PullFailed: oops"},
		"the runtime has no room": {says: "write: no space left on device", want: "NoSpace: write: no space left on device"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &registry{fails: map[string]string{"agent:2": c.says}}
				f := start(t, r, func() string { return c.full })
				pod := asks(t, "b", c.lacks, fetch.Image{Image: "agent:2"})
				f.PodChanged(pod)
				time.Sleep(time.Second)
				if got := answer(f, pod); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
}

// The next pod gets the pull secrets that its account has by now, and not those of when the present one was made.
func TestAnAccountWithOtherPullSecrets(t *testing.T) {
	const (
		private = "401 Unauthorized"
		none    = "agent:2: not found"
		hidden  = "NoSecret: this node may not read pull secret x of service account "
		until   = " before the next pod is there"
	)
	robot := func(secrets ...string) map[string][]string { return map[string][]string{"ns/robot": secrets} }
	for name, c := range map[string]struct {
		says    string
		has     []string
		runs    string
		account map[string][]string
		own     bool
		want    string
	}{
		"added":                   {says: private, account: robot("x"), want: hidden + "robot" + until},
		"so it is not seen":       {says: none, account: robot("x"), want: hidden + "robot" + until},
		"one more":                {says: private, has: []string{"a"}, account: robot("a", "x"), want: hidden + "robot" + until},
		"of the default account":  {says: none, runs: "-", account: map[string][]string{"ns/default": {"x"}}, want: hidden + "default" + until},
		"none":                    {says: private, account: robot(), want: "Unauthorized: " + private},
		"those that it has":       {says: none, has: []string{"x"}, account: robot("x"), want: "NotFound: " + none},
		"taken away":              {says: private, has: []string{"x", "a"}, account: robot("a"), want: "Unauthorized: " + private},
		"its own count":           {says: private, own: true, account: robot("x"), want: "Unauthorized: " + private},
		"what no secret can help": {says: "oops", account: robot("x"), want: "PullFailed: oops"},
		"nobody knows": {says: private,
			want: "Unreachable: read the pull secrets of service account robot: it is away; the registry says: " + private},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &registry{fails: map[string]string{"agent:2": c.says}, account: c.account}
				f := start(t, r, nil)
				pod := asksBy(t, &fetch.Request{Revision: "b", At: time.Now(), OfAccount: !c.own,
					Images: []fetch.Image{{Image: "agent:2"}}})
				pod.Namespace, pod.Spec.ServiceAccountName = "ns", strings.TrimPrefix(cmp.Or(c.runs, "robot"), "-")
				for _, s := range c.has {
					pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: s})
				}
				f.PodChanged(pod)
				time.Sleep(time.Second)
				if got := answer(f, pod); got != c.want {
					t.Errorf("%q, want %q", got, c.want)
				}
			})
		})
	}
}

// What the account names, and whether that is known, is asked for at each try.
func TestAnAccountThatGetsASecretMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{}
		r.fail("agent:2", "401 Unauthorized")
		f := start(t, r, nil)
		pod := asksBy(t, &fetch.Request{Revision: "b", At: time.Now(), OfAccount: true, Images: []fetch.Image{{Image: "agent:2"}}})
		f.PodChanged(pod)
		for _, step := range []struct {
			account map[string][]string
			want    string
		}{
			{nil, "Unreachable"},
			{map[string][]string{}, "Unauthorized"},
			{map[string][]string{"/default": {"x"}}, "NoSecret"},
		} {
			r.names(step.account)
			time.Sleep(retryLast + time.Second)
			if got, _, _ := strings.Cut(answer(f, pod), ":"); got != step.want {
				t.Errorf("with %v it is %s, want %s", step.account, got, step.want)
			}
		}
	})
}

// What nobody can have tells more than what one node cannot.
func TestWorstOfSeveral(t *testing.T) {
	j := &job{request: &fetch.Request{}}
	got, _ := new(Fetcher).verdict(t.Context(), j, []failure{{fetch.NoSpace, "full"}, {fetch.NotFound, "gone"}})
	if got != fetch.NotFound {
		t.Errorf("%s", got)
	}
}

// It is tried again for as long as it is asked for, and says only what is new.
func TestTryingAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{}
		r.fail("agent:2", "dial tcp: connection refused")
		f := start(t, r, nil)
		pod := asks(t, "b", "", fetch.Image{Image: "agent:2"}, fetch.Image{Image: "init:2"})
		f.PodChanged(pod)
		time.Sleep(10 * time.Minute)
		if got := answer(f, pod); !strings.HasPrefix(got, "Unreachable") || r.told() != 1 {
			t.Errorf("%q, %d answers", got, r.told())
		}
		r.fail("", "")
		time.Sleep(retryLast + time.Second)
		if got := answer(f, pod); got != "Fetched" || r.told() != 2 {
			t.Errorf("%q, %d answers", got, r.told())
		}
		if got := r.has(); got != "old init:2 , old agent:2 " {
			t.Errorf("pulled %q: what is there is not pulled again", got)
		}
	})
}

// Who asks no more, or for something else, ends what is under way.
func TestTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{takes: time.Hour}
		f := start(t, r, nil)
		pod := asks(t, "b", "", fetch.Image{Image: "agent:2"})
		f.PodChanged(pod)
		time.Sleep(time.Second)
		f.PodChanged(asks(t, "c", "", fetch.Image{Image: "agent:3"}))
		time.Sleep(time.Second)
		if got := kept(t, f); got != "docker.io/library/agent:3" {
			t.Errorf("kept %q", got)
		}
		f.PodChanged(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "1"}})
		time.Sleep(2 * time.Hour)
		if got := r.has() + kept(t, f); got != "" {
			t.Errorf("pulled or kept %q", got)
		}
	})
}

// Of what was fetched for another revision only that counts as there which stays, since it is asked for again.
func TestAskedForAnotherRevisionMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{}
		f := start(t, r, nil)
		shared := fetch.Image{Image: "init:2"}
		ask := func(revision, image, want string) {
			t.Helper()
			r.forget()
			pod := asks(t, revision, "", fetch.Image{Image: image}, shared)
			f.PodChanged(pod)
			time.Sleep(time.Second)
			if got := r.has(); got != want || answer(f, pod) != "Fetched" {
				t.Errorf("%s: pulled %q, want %q; it says %q", revision, got, want, answer(f, pod))
			}
		}
		ask("b", "agent:2", "old agent:2 , old init:2 ")
		ask("c", "agent:3", "old agent:3 ")
		ask("b", "agent:2", "old agent:2 ")
		ask("b", "agent:2", "")
	})
}

// A pull that is under way when the pod goes ends well: the next pod waits for it. No other is begun.
func TestThePodGoesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{takes: time.Minute}
		r.fail("init:2", "oops")
		f := start(t, r, nil)
		pod := asks(t, "b", "", fetch.Image{Image: "agent:2"}, fetch.Image{Image: "init:2"})
		f.PodChanged(pod)
		time.Sleep(time.Second)
		f.PodGone(pod.UID)
		time.Sleep(9 * time.Minute)
		r.fail("", "")
		time.Sleep(time.Hour)
		if got := r.has(); got != "old agent:2 " {
			t.Errorf("pulled %q", got)
		}
		if r.answers != 0 {
			t.Errorf("%d answers about a pod that is gone", r.answers)
		}
	})
}

// An agent that starts again reads its answer from the pod, and goes on where there is none.
func TestAnAgentStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := asks(t, "b", "", fetch.Image{Image: "agent:2"})
		request, err := fetch.Of(pod.Annotations)
		if err != nil {
			t.Fatal(err)
		}
		done := pod.DeepCopy()
		done.Status.Conditions = []corev1.PodCondition{request.Answer(fetch.Fetched, "")}
		r := &registry{}
		f := start(t, r, nil)
		f.PodChanged(done)
		time.Sleep(time.Hour)
		if got := r.has(); got != "" || answer(f, pod) != "Fetched" || kept(t, f) == "" {
			t.Errorf("pulled %q, answer %q, kept %q", got, answer(f, pod), kept(t, f))
		}
		failed := pod.DeepCopy()
		failed.Status.Conditions = []corev1.PodCondition{request.Answer(fetch.Unreachable, "away")}
		r.takes = time.Minute
		f = start(t, r, nil)
		f.PodChanged(failed)
		if got := answer(f, pod); got != "Unreachable: away" {
			t.Errorf("%q while it is tried again", got)
		}
		time.Sleep(2 * time.Minute)
		if got := answer(f, pod); got != "Fetched" {
			t.Errorf("%q", got)
		}
	})
}
