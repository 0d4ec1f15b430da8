package options

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func written(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const jwtOf = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer: {url: %q, audiences: [everynode]}
  claimMappings: {username: {claim: sub, prefix: "ann:"}}
`

func TestAuthenticationThatIsRefused(t *testing.T) {
	file := func(content string) func(*Options) {
		return func(o *Options) { o.Authentication.ConfigFile = written(t, content) }
	}
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"no file":        {func(o *Options) { o.Authentication.ConfigFile = "/nowhere" }, "--authentication-config: open /nowhere"},
		"no YAML":        {file("{"), "--authentication-config"},
		"another kind":   {file("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"), "an AuthenticationConfiguration"},
		"unknown field":  {file(fmt.Sprintf(jwtOf, "https://a.example") + "more: 1\n"), `unknown field "more"`},
		"no https":       {file(fmt.Sprintf(jwtOf, "http://a.example")), "URL scheme must be https"},
		"our own issuer": {file(fmt.Sprintf(jwtOf, DefaultIssuer)), "URL must not overlap with disallowed issuers"},
		"egress":         {file(strings.Replace(fmt.Sprintf(jwtOf, "https://a.example"), "audiences:", "egressSelectorType: cluster, audiences:", 1)), "there are no egress selectors here"},
		"two of one":     {file(fmt.Sprintf(jwtOf, "https://a.example") + "- issuer: {url: https://a.example, audiences: [x]}\n  claimMappings: {username: {claim: sub, prefix: \"\"}}\n"), "Duplicate value"},
		"anonymous twice": {func(o *Options) {
			file("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: true}\n")(o)
			o.Authentication.AnonymousGiven = true
		}, "leave one of both out"},
		"file and flags": {func(o *Options) {
			file(fmt.Sprintf(jwtOf, "https://a.example"))(o)
			o.Authentication.OIDC.IssuerURL = "https://a.example"
		}, "give one of both"},
		"no client":     {func(o *Options) { o.Authentication.OIDC.IssuerURL = "https://a.example" }, "--oidc-client-id belong together"},
		"a claim alone": {func(o *Options) { o.Authentication.OIDC.GroupsClaim = "groups" }, "--oidc-issuer-url"},
		"no CA": {func(o *Options) {
			o.Authentication.OIDC = OIDC{IssuerURL: "https://a", ClientID: "x", CAFile: "/nowhere"}
		}, "--oidc-ca-file"},
		"algorithm":        {func(o *Options) { oidcOf(o).SigningAlgorithms = []string{"none"} }, `--oidc-signing-algs "none": the algorithms are ES256`},
		"prefix of what":   {func(o *Options) { oidcOf(o).GroupsPrefix = "x:" }, "--oidc-groups-claim"},
		"no issuer":        {func(o *Options) { o.ServiceAccounts.Issuers = nil }, "--service-account-issuer"},
		"no URL":           {func(o *Options) { o.ServiceAccounts.Issuers = []string{"https://a b:%"} }, "--service-account-issuer"},
		"an issuer twice":  {func(o *Options) { o.ServiceAccounts.Issuers = []string{"a", "a"} }, "is given twice"},
		"tokens too short": {func(o *Options) { o.ServiceAccounts.MaxExpiration = time.Minute }, "--service-account-max-token-expiration"},
		"keys in the open": {func(o *Options) { o.ServiceAccounts.KeysURI = "http://a" }, "--service-account-jwks-uri"},
		"time backwards":   {func(o *Options) { o.Objects.NotReadySeconds = -1 }, "--default-not-ready-toleration-seconds"},
		"no events":        {func(o *Options) { o.Objects.EventLifetime = time.Millisecond }, "--event-ttl"},
	} {
		o := New()
		c.change(o)
		_, err := o.Complete()
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want one line with %q", name, err, c.want)
		}
	}
}

func oidcOf(o *Options) *OIDC {
	o.Authentication.OIDC.IssuerURL, o.Authentication.OIDC.ClientID = "https://a.example", "everynode"
	return &o.Authentication.OIDC
}

// The flags mean what they mean to kube-apiserver.
func TestFlagsOfAnIssuer(t *testing.T) {
	for name, c := range map[string]struct {
		claim, prefix, want string
	}{
		"a name is prefixed by its issuer":    {"sub", "", "https://a.example#"},
		"unless it is an address of mail":     {"email", "", ""},
		"or nothing is wanted":                {"sub", "-", ""},
		"or something else":                   {"sub", "corp:", "corp:"},
		"an address of mail may have one too": {"email", "corp:", "corp:"},
	} {
		o := New()
		issuer := oidcOf(o)
		issuer.UsernameClaim, issuer.UsernamePrefix, issuer.RequiredClaims = c.claim, c.prefix, map[string]string{"b": "2", "a": "1"}
		done, err := o.Complete()
		if err != nil {
			t.Fatal(err)
		}
		jwt := done.Authentication.Known().JWT
		if len(jwt) != 1 || *jwt[0].ClaimMappings.Username.Prefix != c.want || len(jwt[0].ClaimValidationRules) != 2 || jwt[0].ClaimValidationRules[0].Claim != "a" {
			t.Errorf("%s: %+v", name, jwt)
		}
	}
}

func TestWhoIsLetInWithoutAnything(t *testing.T) {
	conditions := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: true, conditions: [{path: /livez}]}\n"
	for name, c := range map[string]struct {
		change func(*Authentication)
		want   string
	}{
		"by default":  {func(*Authentication) {}, "{true []}"},
		"nobody":      {func(a *Authentication) { a.Anonymous, a.AnonymousGiven = false, true }, "{false []}"},
		"on one path": {func(a *Authentication) { a.ConfigFile = written(t, conditions) }, "{true [{/livez}]}"},
	} {
		o := New()
		c.change(o.Authentication)
		done, err := o.Complete()
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(done.Authentication.Known().Anonymous); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
