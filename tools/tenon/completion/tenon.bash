# SPDX-License-Identifier: Apache-2.0
# bash completion of tenon(1): verbs, their options, and the names of living domains.

# The names of living domains, or the ids of those without one.
_tenon_domains()
{
    local name rest
    tenon ls 2>/dev/null | {
        read -r name rest # the heading
        while read -r name rest; do
            printf '%s\n' "$name"
        done
    }
}

_tenon()
{
    local word=${COMP_WORDS[COMP_CWORD]} before= verb= i options='--json --help --version'
    local takes_domain=
    COMPREPLY=()
    ((COMP_CWORD > 0)) && before=${COMP_WORDS[COMP_CWORD - 1]}
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == -* ]] || { verb=${COMP_WORDS[i]}; break; }
    done
    case $verb in
    '')
        COMPREPLY=($(compgen -W 'ls stat top blocks tickets gc doctor --help --version' -- "$word"))
        return
        ;;
    ls | gc) ;;
    stat | tickets) takes_domain=1 ;;
    top)
        takes_domain=1
        options+=' --delay --once'
        ;;
    blocks)
        takes_domain=1
        options+=' --sort --limit --holder --long'
        ;;
    doctor)
        takes_domain=1
        options+=' --fix'
        ;;
    *) return ;;
    esac
    case $before in
    --sort | -s)
        COMPREPLY=($(compgen -W 'bytes age' -- "$word"))
        return
        ;;
    --limit | -n | --holder | -p | --delay | -d)
        return
        ;;
    esac
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$word"))
    elif [[ -n $takes_domain ]]; then
        COMPREPLY=($(compgen -W "$(_tenon_domains)" -- "$word"))
    fi
}

complete -F _tenon tenon
