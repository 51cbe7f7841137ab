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

# The options of the verb that take an argument.
_tenon_takes_argument()
{
    case $1 in
    --domain | --for | -f | --sort | -s | --limit | -n | --holder | -p | --delay | -d | --resources | -r | --trace | -t) return 0 ;;
    esac
    return 1
}

_tenon_files()
{
    local IFS=$'\n'
    COMPREPLY=($(compgen -f -- "$1"))
    compopt -o filenames
}

# bash splits --sort=bytes into three words: --sort, = and bytes.
_tenon()
{
    local word=${COMP_WORDS[COMP_CWORD]} option= verb= domain= i options='--json --help --version'
    local verbs='ls stat top blocks tickets gc doctor load unload simulate help' takes_domain= takes_file=
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        =) ;;
        -*)
            option=
            if _tenon_takes_argument "${COMP_WORDS[i]}"; then option=${COMP_WORDS[i]}; fi
            ;;
        *)
            if [[ -z $verb ]]; then
                verb=${COMP_WORDS[i]}
            elif [[ -z $option ]]; then
                domain=${COMP_WORDS[i]}
            fi
            option=
            ;;
        esac
    done
    if [[ $word == = ]]; then word=; fi
    case $verb in
    '')
        COMPREPLY=($(compgen -W "$verbs --help --version" -- "$word"))
        return
        ;;
    help)
        [[ -n $domain ]] || COMPREPLY=($(compgen -W "$verbs" -- "$word"))
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
    load)
        if [[ -n $domain ]]; then takes_file=1; fi
        options+=' --domain --for --quiet'
        ;;
    unload) options+=' --domain' ;;
    simulate)
        takes_file=1
        options+=' --resources --trace'
        ;;
    *) return ;;
    esac
    case $option in
    '') ;;
    --sort | -s)
        COMPREPLY=($(compgen -W 'bytes age' -- "$word"))
        return
        ;;
    --trace | -t)
        _tenon_files "$word"
        return
        ;;
    *) return ;;
    esac
    if [[ $word == -* ]]; then
        COMPREPLY=($(compgen -W "$options" -- "$word"))
    elif [[ -n $takes_domain && -z $domain ]]; then
        COMPREPLY=($(compgen -W "$(_tenon_domains)" -- "$word"))
    elif [[ -n $takes_file ]]; then
        _tenon_files "$word"
    fi
}

complete -F _tenon tenon
