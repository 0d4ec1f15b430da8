package podspec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/everynode/everynode/internal/apiserver/enough"
	"github.com/everynode/everynode/internal/apiserver/podspec/check"
)

func validateHostAliases(aliases []corev1.HostAlias, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, a := range enough.Each(aliases, &errs) {
		at := path.Index(i)
		errs = append(errs, utilvalidation.IsValidIPForLegacyField(at.Child("ip"), a.IP, false, nil)...)
		for j, name := range enough.Each(a.Hostnames, &errs) {
			errs = append(errs, check.DNSSubdomain(at.Child("hostnames").Index(j), name)...)
		}
	}
	return errs
}

// unambiguous refuses addresses that some programs read in another way than others, such
// as those with leading zeros. Those that were there before stay as they were written;
// what is no address at all is refused by others.
func unambiguous(spec *corev1.PodSpec, before []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	strictly := check.IPs(before)
	look := func(at *field.Path, ip string) {
		if len(utilvalidation.IsValidIPForLegacyField(at, ip, false, nil)) == 0 {
			errs = append(errs, strictly(at, ip)...)
		}
	}
	if spec.DNSConfig != nil {
		for i, ip := range spec.DNSConfig.Nameservers {
			look(path.Child("dnsConfig", "nameservers").Index(i), ip)
		}
	}
	for i, a := range spec.HostAliases {
		look(path.Child("hostAliases").Index(i).Child("ip"), a.IP)
	}
	return errs
}

// addressesOf lists the addresses in a specification.
func addressesOf(spec *corev1.PodSpec) (out []string) {
	if spec.DNSConfig != nil {
		out = append(out, spec.DNSConfig.Nameservers...)
	}
	for _, a := range spec.HostAliases {
		out = append(out, a.IP)
	}
	return out
}

// What a resolver in a container can be told at most.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

func validateDNSConfig(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	c := spec.DNSConfig
	if spec.DNSPolicy == corev1.DNSNone {
		switch {
		case c == nil:
			return field.ErrorList{field.Required(path, fmt.Sprintf("must provide `dnsConfig` when `dnsPolicy` is %s",
				corev1.DNSNone))}
		case len(c.Nameservers) == 0:
			return field.ErrorList{field.Required(path.Child("nameservers"),
				fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", corev1.DNSNone))}
		}
	}
	if c == nil {
		return nil
	}
	if len(c.Nameservers) > maxNameservers {
		errs = append(errs, field.Invalid(path.Child("nameservers"), c.Nameservers,
			fmt.Sprintf("must not have more than %v nameservers", maxNameservers)))
	}
	for i, ip := range enough.Each(c.Nameservers, &errs) {
		errs = append(errs, utilvalidation.IsValidIPForLegacyField(path.Child("nameservers").Index(i), ip, false, nil)...)
	}
	errs = append(errs, validateSearches(c.Searches, path.Child("searches"))...)
	for i, o := range enough.Each(c.Options, &errs) {
		if o.Name == "" {
			errs = append(errs, field.Required(path.Child("options").Index(i), "must not be empty"))
		}
	}
	return errs
}

func validateSearches(searches []string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(searches) > maxSearches {
		errs = append(errs, field.Invalid(path, searches,
			fmt.Sprintf("must not have more than %v search paths", maxSearches)))
	}
	if len(strings.Join(searches, " ")) > maxSearchChars {
		errs = append(errs, field.Invalid(path, searches,
			fmt.Sprintf("must not have more than %v characters (including spaces) in the search list", maxSearchChars)))
	}
	for i, s := range enough.Each(searches, &errs) {
		if s != "." {
			s = strings.TrimSuffix(s, ".")
			errs = append(errs, check.Invalid(path.Index(i), s, utilvalidation.IsDNS1123SubdomainWithUnderscore(s))...)
		}
	}
	return errs
}

// validateGates checks what holds a pod back from being scheduled or ready.
func validateGates(spec *corev1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, g := range enough.Each(spec.ReadinessGates, &errs) {
		errs = append(errs, check.LabelName(path.Child("readinessGates").Index(i).Child("conditionType"),
			string(g.ConditionType))...)
	}
	names := sets.New[string]()
	for i, g := range enough.Each(spec.SchedulingGates, &errs) {
		at := path.Child("schedulingGates").Index(i)
		errs = append(errs, check.LabelName(at.Child("name"), g.Name)...)
		if names.Has(g.Name) {
			errs = append(errs, field.Duplicate(at, g.Name))
		}
		names.Insert(g.Name)
	}
	return errs
}
