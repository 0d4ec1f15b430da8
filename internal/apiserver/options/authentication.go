package options

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
)

// Authentication is who else is known than the cluster itself knows.
type Authentication struct {
	// Anonymous lets those in who show nothing, as system:anonymous. AnonymousGiven says
	// that the operator has said so, or the opposite.
	Anonymous, AnonymousGiven bool
	// ConfigFile is an AuthenticationConfiguration.
	ConfigFile string
	// OIDC is one issuer of tokens, without such a file.
	OIDC OIDC

	known *Known
}

// OIDC is an issuer of tokens as kube-apiserver's flags describe it.
type OIDC struct {
	IssuerURL, ClientID, CAFile   string
	UsernameClaim, UsernamePrefix string
	GroupsClaim, GroupsPrefix     string
	SigningAlgorithms             []string
	RequiredClaims                map[string]string
}

// noPrefix is what stands for no prefix of user names.
const noPrefix = "-"

// Known is what was asked for, after it was checked.
type Known struct {
	// Anonymous are the paths on which those are let in who show nothing; Conditions is
	// empty for all paths.
	Anonymous apiserver.AnonymousAuthConfig
	// JWT are issuers whose tokens are accepted.
	JWT []apiserver.JWTAuthenticator
	// SigningAlgorithms are those that the tokens may be signed with.
	SigningAlgorithms []string
}

// Known is who is let in. It may be asked after Complete.
func (a *Authentication) Known() Known { return *a.known }

func newAuthentication() *Authentication {
	return &Authentication{Anonymous: true, OIDC: OIDC{UsernameClaim: "sub", SigningAlgorithms: []string{"RS256"}}}
}

// complete reads and checks who is let in.
func (a *Authentication) complete(own []string) error {
	known := Known{Anonymous: apiserver.AnonymousAuthConfig{Enabled: a.Anonymous}}
	config, err := a.configuration()
	if err != nil {
		return err
	}
	if config != nil {
		if err := a.check(config, own); err != nil {
			return err
		}
		if config.Anonymous != nil {
			known.Anonymous = *config.Anonymous
		}
		known.JWT, known.SigningAlgorithms = config.JWT, oidc.AllValidSigningAlgorithms()
		if a.ConfigFile == "" {
			known.SigningAlgorithms = a.OIDC.SigningAlgorithms
		}
	}
	a.known = &known
	return nil
}

// configuration reads the file, or makes of the flags what would be in it. It is nil
// where there is neither.
func (a *Authentication) configuration() (*apiserver.AuthenticationConfiguration, error) {
	switch {
	case a.ConfigFile != "" && a.OIDC.given():
		return nil, errors.New("--authentication-config and the flags that begin with --oidc- say the same; give one of both")
	case a.ConfigFile != "":
		return readAuthentication(a.ConfigFile)
	case a.OIDC.given():
		return a.OIDC.configuration()
	}
	return nil, nil
}

func (a *Authentication) check(config *apiserver.AuthenticationConfiguration, own []string) error {
	from := "--authentication-config " + a.ConfigFile
	if a.ConfigFile == "" {
		from = "the flags that begin with --oidc-"
	}
	if a.AnonymousGiven && config.Anonymous != nil {
		return fmt.Errorf("%s has a field anonymous, and --anonymous-auth is given as well; leave one of both out", from)
	}
	for _, jwt := range config.JWT {
		if jwt.Issuer.EgressSelectorType != "" {
			return fmt.Errorf(
				"%s: issuer %s has an egressSelectorType; there are no egress selectors here, leave it out", from, jwt.Issuer.URL,
			)
		}
	}
	if errs := validation.ValidateAuthenticationConfiguration(authenticationcel.NewDefaultCompiler(), config,
		own); len(errs) > 0 {
		return fmt.Errorf("%s: %s", from, oneLine(errs.ToAggregate()))
	}
	for _, algorithm := range a.OIDC.SigningAlgorithms {
		if all := oidc.AllValidSigningAlgorithms(); !slices.Contains(all, algorithm) {
			return fmt.Errorf("--oidc-signing-algs %q: the algorithms are %s", algorithm, strings.Join(all, ", "))
		}
	}
	return nil
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func readAuthentication(file string) (*apiserver.AuthenticationConfiguration, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--authentication-config: %w", err)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(apiserver.SchemeGroupVersion)
	read, err := runtime.Decode(decoder, content)
	if err != nil {
		return nil, fmt.Errorf("--authentication-config %s: %s", file, oneLine(err))
	}
	config, ok := read.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf(
			"--authentication-config %s: it is a %T; an AuthenticationConfiguration of apiserver.config.k8s.io/v1 is needed",
			file, read,
		)
	}
	return config, nil
}

// given says whether any of the flags was used.
func (o *OIDC) given() bool {
	return o.IssuerURL+o.ClientID+o.CAFile+o.UsernamePrefix+o.GroupsClaim+o.GroupsPrefix != "" || len(o.RequiredClaims) > 0
}

func (o *OIDC) configuration() (*apiserver.AuthenticationConfiguration, error) {
	if o.IssuerURL == "" || o.ClientID == "" {
		return nil, errors.New(
			"--oidc-issuer-url and --oidc-client-id belong together, and all other flags that begin with --oidc- need them",
		)
	}
	jwt := apiserver.JWTAuthenticator{Issuer: apiserver.Issuer{URL: o.IssuerURL, Audiences: []string{o.ClientID}}}
	if o.CAFile != "" {
		ca, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("--oidc-ca-file: %w", err)
		}
		jwt.Issuer.CertificateAuthority = string(ca)
	}
	prefix := o.UsernamePrefix
	switch {
	case prefix == noPrefix:
		prefix = ""
	case prefix == "" && o.UsernameClaim != "email":
		prefix = o.IssuerURL + "#"
	}
	jwt.ClaimMappings.Username = apiserver.PrefixedClaimOrExpression{Claim: o.UsernameClaim, Prefix: &prefix}
	if o.GroupsClaim != "" {
		jwt.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: o.GroupsClaim, Prefix: &o.GroupsPrefix}
	} else if o.GroupsPrefix != "" {
		return nil, errors.New(
			"--oidc-groups-prefix is put before the groups that --oidc-groups-claim names; give that as well",
		)
	}
	for _, claim := range slices.Sorted(maps.Keys(o.RequiredClaims)) {
		jwt.ClaimValidationRules = append(jwt.ClaimValidationRules, apiserver.ClaimValidationRule{
			Claim:         claim,
			RequiredValue: o.RequiredClaims[claim],
		})
	}
	return &apiserver.AuthenticationConfiguration{JWT: []apiserver.JWTAuthenticator{jwt}}, nil
}
