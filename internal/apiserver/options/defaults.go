package options

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

// ServiceAccounts is how tokens of service accounts are made.
type ServiceAccounts struct {
	// Issuers may have issued a token; the first one issues new ones.
	Issuers []string
	// Audiences are those of this API; the issuers unless set.
	Audiences []string
	// MaxExpiration is how long a token is good for at most; 0 for as long as is asked for.
	MaxExpiration time.Duration
	// KeysURI is where others find the public keys; empty for this server.
	KeysURI string
}

// DefaultIssuer is the issuer of tokens unless another is named.
const DefaultIssuer = "https://kubernetes.default.svc"

// Bounds of the longest life of a token, the same as kube-apiserver's.
const (
	shortestExpiration = time.Hour
	longestExpiration  = (1 << 32) * time.Second
)

func (a *ServiceAccounts) validate() (errs []error) {
	if len(a.Issuers) == 0 {
		errs = append(errs, errors.New("--service-account-issuer: name one, such as "+DefaultIssuer))
	}
	seen := sets.New[string]()
	for _, issuer := range a.Issuers {
		if issuer == "" || strings.Contains(issuer, ":") && !parses(issuer) {
			errs = append(errs, fmt.Errorf("--service-account-issuer %q: give a URL, such as %s", issuer, DefaultIssuer))
		}
		if seen.Has(issuer) {
			errs = append(errs, fmt.Errorf("--service-account-issuer %q is given twice", issuer))
		}
		seen.Insert(issuer)
	}
	if slices.Contains(a.Audiences, "") {
		errs = append(errs, errors.New("--api-audiences: an audience has a name"))
	}
	if d := a.MaxExpiration; d != 0 && (d < shortestExpiration || d > longestExpiration) {
		errs = append(errs, fmt.Errorf(
			"--service-account-max-token-expiration %v: give %v or more, and less than 2^32 seconds", d, shortestExpiration,
		))
	}
	if uri := a.KeysURI; uri != "" && (!parses(uri) || !strings.HasPrefix(uri, "https://")) {
		errs = append(errs, fmt.Errorf("--service-account-jwks-uri %q: give a URL that begins with https://", uri))
	}
	return errs
}

func parses(text string) bool {
	_, err := url.Parse(text)
	return err == nil
}

// complete fills in what follows from the rest.
func (a *ServiceAccounts) complete() {
	if len(a.Audiences) == 0 {
		a.Audiences = slices.Clone(a.Issuers)
	}
}

// Objects are defaults of objects that an operator may set.
type Objects struct {
	// NotReadySeconds and UnreachableSeconds are how long a pod stays on a node with
	// that taint unless it says so itself.
	NotReadySeconds, UnreachableSeconds int64
	// EventLifetime is how long events are kept.
	EventLifetime time.Duration
}

// defaultTolerationSeconds is how long pods stay on a silent node.
const defaultTolerationSeconds = 300

func newObjects() *Objects {
	return &Objects{
		NotReadySeconds:    defaultTolerationSeconds,
		UnreachableSeconds: defaultTolerationSeconds,
		EventLifetime:      time.Hour,
	}
}

func (o *Objects) validate() (errs []error) {
	for flag, seconds := range map[string]int64{
		"--default-not-ready-toleration-seconds":   o.NotReadySeconds,
		"--default-unreachable-toleration-seconds": o.UnreachableSeconds,
	} {
		if seconds < 0 {
			errs = append(errs, fmt.Errorf("%s %d: give 0 or more", flag, seconds))
		}
	}
	if o.EventLifetime < time.Second {
		errs = append(errs, fmt.Errorf("--event-ttl %v: events are kept for whole seconds; give 1s or more", o.EventLifetime))
	}
	return errs
}
