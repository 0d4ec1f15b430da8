package fetch

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 8, 1, 12, 0, 0, 5, time.UTC)

func asked(t *testing.T, r Request, conditions ...corev1.PodCondition) *corev1.Pod {
	t.Helper()
	text, err := r.Text()
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{Name: text}},
		Status: corev1.PodStatus{Conditions: conditions}}
}

func since(at time.Time, c corev1.PodCondition) corev1.PodCondition {
	c.LastTransitionTime = metav1.NewTime(at)
	return c
}

func TestAnswersAreToTheirRequest(t *testing.T) {
	r := Request{Revision: "b", At: noon, Images: []Image{{"agent:2", corev1.PullAlways}}}
	later := r
	later.At = noon.Add(time.Nanosecond)
	longer := r
	longer.Revision = "a b"
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want Report
	}{
		"none":       {&corev1.Pod{}, Report{}},
		"unreadable": {&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{Name: "{"}}}, Report{}},
		"no time": {&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{Name: `{"revision":"b"}`}}},
			Report{}},
		"asked":      {asked(t, r), Report{Revision: "b", At: noon}},
		"fetched":    {asked(t, r, r.Answer(Fetched, "")), Report{Revision: "b", At: noon, Reason: Fetched, Answered: noon}},
		"to another": {asked(t, r, later.Answer(Fetched, "")), Report{Revision: "b", At: noon}},
		"to a longer": {asked(t, r, corev1.PodCondition{Type: Condition, Reason: "Fetched", Message: r.Key() + "5"}),
			Report{Revision: "b", At: noon}},
		"another condition": {asked(t, r, corev1.PodCondition{Type: corev1.PodReady, Reason: "Fetched", Message: r.Key()}),
			Report{Revision: "b", At: noon}},
		"failed": {asked(t, r, r.Answer(NoSpace, "disk: full")),
			Report{Revision: "b", At: noon, Reason: NoSpace, Why: "disk: full", Answered: noon}},
		"for long": {asked(t, r, since(noon.Add(time.Hour), r.Answer(NoSpace, ""))),
			Report{Revision: "b", At: noon, Reason: NoSpace, Answered: noon.Add(time.Hour)}},
		"before it was asked": {asked(t, r, since(noon.Add(-time.Hour), r.Answer(NoSpace, ""))),
			Report{Revision: "b", At: noon, Reason: NoSpace, Answered: noon}},
		"to another, for long": {asked(t, r, since(noon.Add(time.Hour), later.Answer(NoSpace, ""))),
			Report{Revision: "b", At: noon}},
	} {
		if got := ReportOf(c.pod); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	full, away, next := r.Answer(NoSpace, "disk: full"), r.Answer(Unreachable, ""), later.Answer(NoSpace, "disk: full")
	if !SameRequest(&full, &away) || SameRequest(&full, &next) {
		t.Errorf("%q answers what %q does: %v, and what %q does: %v", full.Message, away.Message, SameRequest(&full, &away),
			next.Message, SameRequest(&full, &next))
	}
}

func TestImagesOfAPod(t *testing.T) {
	spec := &corev1.PodSpec{
		Volumes: []corev1.Volume{{}, {VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{
			Reference: "data:1", PullPolicy: corev1.PullNever}}}},
		InitContainers: []corev1.Container{{Image: "init:1"}, {Image: "agent:2"}},
		Containers: []corev1.Container{{Image: "agent:2"}, {Image: "agent:2", ImagePullPolicy: corev1.PullAlways},
			{}},
	}
	got, more := Images(spec)
	want := []Image{{"data:1", "Never"}, {"init:1", ""}, {"agent:2", ""}, {"agent:2", "Always"}}
	if len(got) != len(want) || more != 0 {
		t.Fatalf("%v and %d more, want %v", got, more, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

func TestMoreImagesThanARequestHas(t *testing.T) {
	for images, want := range map[int][2]int{MaxImages: {MaxImages, 0}, MaxImages + 3: {MaxImages, 3}} {
		spec := &corev1.PodSpec{}
		for i := range images {
			c := corev1.Container{Image: fmt.Sprint("agent:", i)}
			spec.Containers = append(spec.Containers, c, c)
		}
		got, more := Images(spec)
		if [2]int{len(got), more} != want {
			t.Errorf("of %d images %d are asked for, and %d are not; want %v", images, len(got), more, want)
		}
	}
}

func TestCredentialsThatThePresentPodLacks(t *testing.T) {
	secrets := func(names ...string) (out []corev1.LocalObjectReference) {
		for _, n := range names {
			out = append(out, corev1.LocalObjectReference{Name: n})
		}
		return out
	}
	for name, c := range map[string]struct {
		next, present corev1.PodSpec
		want          string
		ofAccount     bool
	}{
		"none": {ofAccount: true},
		"the same": {next: corev1.PodSpec{ImagePullSecrets: secrets("a")},
			present: corev1.PodSpec{ImagePullSecrets: secrets("b", "a"), ServiceAccountName: "default"}},
		"another": {next: corev1.PodSpec{ImagePullSecrets: secrets("a", "c")},
			present: corev1.PodSpec{ImagePullSecrets: secrets("a")}, want: "pull secret c"},
		"of the account": {present: corev1.PodSpec{ImagePullSecrets: secrets("a"), ServiceAccountName: "default"},
			ofAccount: true},
		"another account": {next: corev1.PodSpec{ServiceAccountName: "robot"},
			present: corev1.PodSpec{ServiceAccountName: "default"},
			want:    "the pull secrets of service account robot", ofAccount: true},
	} {
		if got, ofAccount := Lacks(&c.next, &c.present); got != c.want || ofAccount != c.ofAccount {
			t.Errorf("%s: %q, %v; want %q, %v", name, got, ofAccount, c.want, c.ofAccount)
		}
	}
}

// Words of containerd 2 and of registries.
func TestClassify(t *testing.T) {
	for said, want := range map[string]Reason{
		`failed to pull and unpack image "r/a:2": failed to resolve reference "r/a:2": r/a:2: not found`: NotFound,
		`failed to pull and unpack image "docker.io/library/x:1": failed to resolve reference "docker.io/library/x:1": ` +
			`pull access denied, repository does not exist or may require authorization`: Unauthorized,
		`failed to authorize: failed to fetch oauth token: unexpected status from GET request: 401 Unauthorized`:      Unauthorized,
		`failed to do request: Head "https://r/v2/a/manifests/2": dial tcp 10.0.0.1:443: connect: connection refused`: Unreachable,
		`failed to do request: Head "https://r/v2/": dial tcp: lookup r: no such host`:                                Unreachable,
		`failed to copy: write /var/lib/containerd/ingest/data: no space left on device`:                              NoSpace,
		`no match for platform in manifest: not found`:                                                                NotFound,
		`unexpected status from HEAD request to https://r/v2/a/manifests/2: 503 Service Unavailable`:                  Unreachable,
		`simulated images called fail do not exist`:                                                                   NotFound,
		`failed to pull and unpack image "r/certificate-agent:typo": failed to resolve reference "r/certificate-agent:typo": ` +
			`r/certificate-agent:typo: not found`: NotFound,
		`back-off pulling image "toomanyrequests": manifest unknown`:                                                   NotFound,
		`reading manifest 2 in docker.io/library/i/o-timeout-agent: manifest unknown`:                                  NotFound,
		`failed to do request: Head "https://certificate.example.com/v2/a/manifests/2": x509: certificate has expired`: Unreachable,
		`failed to do request: Head "https://r/v2/not-found/manifests/2": dial tcp 10.0.0.1:443: i/o timeout`:          Unreachable,
		`unexpected status: "503 Service Unavailable"`:                                                                 Unreachable,
		`failed to copy: write /certificate/not found: no space left on device`:                                        NoSpace,
		`"`:              PullFailed,
		``:               PullFailed,
		`something else`: PullFailed,
	} {
		if got := Classify(said); got != want {
			t.Errorf("%s: %s, want %s", said, got, want)
		}
	}
	for reason, want := range map[Reason][2]bool{
		"": {}, Fetched: {true, false}, NoSecret: {true, false}, NoSpace: {false, true}, Unreachable: {false, true},
		NotFound: {}, Unauthorized: {}, PullFailed: {},
	} {
		if got := [2]bool{reason.Done(), reason.Own()}; got != want {
			t.Errorf("%s: %v, want %v", reason, got, want)
		}
	}
}

// Agents and controllers of different releases read each other's requests.
func TestRequestsOfOtherReleases(t *testing.T) {
	older := map[string]string{Name: `{"revision":"b","at":"2026-08-01T12:00:00Z","images":[{"image":"a:2"}],"lacks":"x"}`}
	r, err := Of(older)
	if err != nil || r.OfAccount || r.Lacks != "x" {
		t.Errorf("what an older controller asks for is read as %+v, %v", r, err)
	}
	r.OfAccount = true
	if again, err := Of(asked(t, *r).Annotations); err != nil || !again.OfAccount || again.Key() != r.Key() {
		t.Errorf("what is asked for is read as %+v, %v", again, err)
	}
	newer := map[string]string{Name: `{"revision":"b","at":"2026-08-01T12:00:00Z","images":null,"unheardOf":true}`}
	if _, err := Of(newer); err != nil {
		t.Errorf("what a newer controller asks for: %v", err)
	}
}
