#!/bin/sh
# Fetches a Debian package into a cache, without installing it and without root:
#
#   fetch.sh kernel CACHE PACKAGE    the kernel's image and modules
#   fetch.sh captures CACHE PACKAGE  the capture files among the tests of a source package
#   fetch.sh verify CACHE ENTRY      fetches nothing; fails if the entry is missing or damaged
#
# PACKAGE is NAME, or NAME/SUITE for another suite of this machine's package server. The entry is
# CACHE/NAME@SUITE for a kernel, and CACHE/captures. Its file SHA256SUMS shows that it is complete.
# apt verifies the archive's signature; later uses verify SHA256SUMS. The machine's own package
# lists and sources do not change. ringside-netlab embeds this file, and scripts/setup runs it.
set -eu

say() { printf 'fetch: %s\n' "$*" >&2; }
fail() {
	say "$*"
	exit 1
}

[ $# = 3 ] || fail "usage: fetch.sh kernel|captures|verify CACHE PACKAGE"
kind=$1 cache=$2 package=$3
name=${package%%/*}
suite=${package#"$name"}
suite=${suite#/}
entry=$cache/$name${suite:+@$suite}
[ "$kind" != captures ] || entry=$cache/captures

verify() {
	[ -e "$entry/SHA256SUMS" ] || return 1
	(cd "$entry" && sha256sum --check --quiet --strict SHA256SUMS >&2)
}

if [ "$kind" = verify ]; then
	verify
	exit
fi

# --- one process at a time --------------------------------------------------------------------

for tool in apt-get apt-cache dpkg flock; do
	command -v "$tool" >/dev/null || fail "cannot fetch $package: this system has no $tool"
done
mkdir -p "$cache"
exec 9>"$cache/lock"
flock -w 600 9 || fail "cannot lock $cache/lock: another process has held it for ten minutes"
[ ! -e "$entry/SHA256SUMS" ] || ! verify || exit 0

# Nobody else holds the lock, so these are of processes that were killed.
rm -rf "$cache"/fetch.??????
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/files" "$work/entry"

# --- apt with sources of its own --------------------------------------------------------------

. /etc/os-release
codename=${VERSION_CODENAME:-}
format='$(REPO_URI) $(RELEASE) $(COMPONENT)'
targets=$(apt-get indextargets --format "$format" 'Created-By: Packages') ||
	fail "cannot fetch $package: apt-get cannot read its sources"
# The server that has the suite, else the one of this machine's release, else any.
server=$(printf '%s\n' "$targets" | awk -v suite="$suite" -v codename="$codename" '
	$3 != "main" { next }
	$2 == suite && !best { best = $1 }
	$2 == codename && !own { own = $1 }
	!any { any = $1 }
	END { print best ? best : own ? own : any }')
[ -n "$server" ] || fail "cannot fetch $package: apt has no source of packages in /etc/apt"
keys=/usr/share/keyrings/${ID:-debian}-archive-keyring.gpg
suites=${suite:-$codename}
# A package of the machine's release may have been updated since.
[ -n "$suite" ] || suites=$(printf '%s\n' "$targets" |
	awk -v server="$server" -v codename="$codename" '
	$1 == server && ($2 == codename || $2 ~ "^" codename "-(updates|security)$") && !seen[$2]++ {
		print $2
	}' | tr '\n' ' ')
types=deb
[ "$kind" != captures ] || types=deb-src
{
	printf 'Types: %s\nURIs: %s\n' "$types" "$server"
	printf 'Suites: %s\nComponents: main\n' "${suites:-$codename}"
	[ ! -e "$keys" ] || printf 'Signed-By: %s\n' "$keys"
} >"$work/apt/ringside.sources"

# apt PROGRAM ARGUMENTS...
apt() {
	program=$1
	shift
	# By default apt-get succeeds if it cannot read an index, and apt runs as a user that may not
	# write here.
	"$program" -q -q -o "Dir::State::lists=$work/apt/lists" -o "Dir::Cache=$work/apt/cache" \
		-o "Dir::Etc::sourcelist=$work/apt/ringside.sources" -o Dir::Etc::sourceparts=/dev/null \
		-o APT::Sandbox::User=root -o APT::Update::Error-Mode=any -o Acquire::Retries=3 "$@"
}

# --- what is fetched --------------------------------------------------------------------------

# The files of a kernel are in these packages; its other dependencies are for systems that boot it.
dependencies() {
	sed -n 's/^Depends: //p' | tr ',' '\n' | sed 's/^ *//; s/[ |:].*//' |
		grep -E '^linux-(image|binary|modules)-' || true
}

download_kernel() {
	set -- "$name"
	names=
	while [ $# -gt 0 ]; do
		next=$1
		shift
		case " $names " in *" $next "*) continue ;; esac
		names="$names $next"
		shown=$(apt apt-cache show --no-all-versions "$next") || return 1
		# shellcheck disable=SC2046 # Each word is a package.
		set -- "$@" $(printf '%s\n' "$shown" | dependencies)
	done
	# shellcheck disable=SC2086 # Each word is a package.
	(cd "$work/files" && apt apt-get download $names >&2)
}

unpack_kernel() {
	for file in "$work"/files/*.deb; do
		dpkg -x "$file" "$work/entry" || return 1
	done
	for modules in "$work"/entry/lib/modules/*/kernel "$work"/entry/usr/lib/modules/*/kernel; do
		[ ! -d "$modules" ] || return 0
	done
	fail "the package $package has no kernel with modules"
}

download_captures() {
	# The tests are upstream's.
	(cd "$work/files" && apt apt-get source --download-only --tar-only "$name" >&2)
}

unpack_captures() {
	for file in "$work"/files/*.orig.tar.?z; do
		tar -xf "$file" -C "$work/files" || return 1
	done
	find "$work/files" -path '*/tests/*' \( -name '*.pcap' -o -name '*.cap' \) \
		-exec cp -t "$work/entry" {} +
	[ -n "$(ls "$work/entry")" ] || fail "the source package $package has no capture files"
}

case $kind in
kernel | captures) ;;
*) fail "unknown kind $kind: kernel or captures" ;;
esac
for pause in 2 5 10 20 none; do
	rm -f "$work"/files/*
	if apt apt-get update >&2 && "download_$kind"; then
		break
	fi
	[ "$pause" != none ] || fail "cannot fetch $package from $server (suites: $suites): five tries \
failed, with the messages of apt above. Check the network and that this server has that suite, \
then run this again"
	say "$package: the server $server failed (see above); next try in $pause s"
	sleep "$pause"
done
"unpack_$kind" || fail "cannot unpack $package"
(
	cd "$work/entry"
	find . -type f -print0 | sort -z | xargs -0 sha256sum
) >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" "$work/entry/SHA256SUMS"
# An entry of an older version of this program, or a damaged one.
[ ! -e "$entry" ] || mv "$entry" "$work/old"
mv "$work/entry" "$entry"
